//! The telemetry of ONNX Runtime, which is off unless the user turns it on.

/// The variable that ONNX Runtime reads.
const VARIABLE: &str = "ORT_DISABLE_TELEMETRY";

/// Turns the telemetry of ONNX Runtime off in this process and in those that it starts. A value of the user,
/// such as ORT_DISABLE_TELEMETRY=0, stands; an empty one is none.
///
/// The official builds since 1.29 collect and upload by default. They read the variable when an environment
/// is made, and begin at once, so that ORT_API's own switch comes too late.
///
/// The environment of a process must not change while another thread reads it, so the program calls this
/// first of all. [`load`] calls it for other users of the crate: they call `load` before they start threads,
/// or set the variable themselves.
///
/// [`load`]: super::load
#[allow(unsafe_code)]
pub fn disable_telemetry() {
    if std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty()) {
        return;
    }
    // SAFETY: no other thread reads or writes the environment, as the documentation of this function asks of
    // its callers.
    unsafe { std::env::set_var(VARIABLE, "1") };
}
