"""Writes tests/exported: tiny models with random weights as Optimum 1.x exports them, with transformers'
files.

    pip install torch transformers==4.57.1 pillow
    python research/golden/hugging_face.py tests/exported

Input, output and axis names are those of Optimum's configurations of CLIP and ViT.
"""

import sys
from pathlib import Path

import torch
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, ViTConfig, ViTImageProcessor, ViTModel

SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
VISION = {**SMALL, "image_size": 32, "patch_size": 8}
IMAGES = {1: "num_channels", 2: "height", 3: "width"}


class Clip(torch.nn.Module):
    """A full CLIP: both towers and the logits."""

    def __init__(self):
        super().__init__()
        text = {**SMALL, "vocab_size": 64, "max_position_embeddings": 8, "eos_token_id": 63, "bos_token_id": 0}
        self.net = CLIPModel(CLIPConfig(text_config=text, vision_config=VISION, projection_dim=16))

    def forward(self, input_ids, pixel_values, attention_mask):
        out = self.net(input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask)
        return out.logits_per_image, out.logits_per_text, out.text_embeds, out.image_embeds


class Vit(torch.nn.Module):
    """A ViT with its pooler."""

    def __init__(self):
        super().__init__()
        self.net = ViTModel(ViTConfig(**VISION), add_pooling_layer=True)

    def forward(self, pixel_values):
        out = self.net(pixel_values)
        return out.last_hidden_state, out.pooler_output


def export(net, example, file, inputs, outputs):
    """``inputs`` and ``outputs`` are names with their free axes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    names = {"input_names": list(inputs), "output_names": list(outputs), "dynamic_axes": {**inputs, **outputs}}
    torch.onnx.export(net.eval(), example, str(file), opset_version=17, dynamo=False, **names)


def main():
    root = Path(sys.argv[1])
    torch.manual_seed(0)
    texts = {0: "text_batch_size", 1: "sequence_length"}
    export(
        Clip(),
        (torch.tensor([[0, 5] + [63] * 6] * 2), torch.randn(2, 3, 32, 32), torch.ones(2, 8, dtype=torch.int64)),
        root / "clip/model.onnx",
        {"input_ids": texts, "pixel_values": {0: "image_batch_size", **IMAGES}, "attention_mask": texts},
        {
            "logits_per_image": {0: "image_batch_size", 1: "text_batch_size"},
            "logits_per_text": {0: "text_batch_size", 1: "image_batch_size"},
            "text_embeds": {0: "text_batch_size"},
            "image_embeds": {0: "image_batch_size"},
        },
    )
    CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(root / "clip")
    export(
        Vit(),
        (torch.randn(2, 3, 32, 32),),
        root / "vit/onnx/model.onnx",
        {"pixel_values": {0: "batch_size", **IMAGES}},
        {"last_hidden_state": {0: "batch_size"}, "pooler_output": {0: "batch_size"}},
    )
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(root / "vit")


if __name__ == "__main__":
    main()
