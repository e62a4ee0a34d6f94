# audit with ONNX Runtime inside, for the CPU and for CUDA:
#
#   docker build --target cpu -t audit .
#   docker run --rm -v "$PWD:/work" audit --suite ars model.onnx -o report.json
#
#   docker build --target cuda -t audit-cuda .
#   docker run --rm --gpus all -v "$PWD:/work" audit-cuda --ep cuda --suite ars model.onnx -o report.json
#
# The program runs as user 1000, who must be able to write to the folder that is mounted; others add --user "$(id -u)".

FROM rust:1.92-slim-bookworm AS build
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends -y build-essential python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN python3 -m venv /tools && /tools/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim-bookworm AS base
# For whatever else of the image loads ONNX Runtime; audit sets it itself (docs/privacy.md).
ENV ORT_DISABLE_TELEMETRY=1
RUN useradd --create-home --uid 1000 audit
COPY --from=build /wheels /wheels
WORKDIR /work

# The driver and its libcuda come from the host, everything else of CUDA from the wheels.
FROM base AS cuda
# The name of the wheel has the version in it.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[cuda]"
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 1000
ENTRYPOINT ["audit"]
CMD ["--help"]

FROM base AS cpu
# hadolint ignore=DL3013
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[cpu]"
USER 1000
ENTRYPOINT ["audit"]
CMD ["--help"]
