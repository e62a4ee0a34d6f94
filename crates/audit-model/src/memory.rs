//! The memory of the host that a model may use.
//!
//! A model file may come from anybody, and a file of one kilobyte can ask for more than any machine has. So
//! there is a limit, and two places hold models to it: shapes that are known are compared with it before
//! anything is computed (`runtime/sizes.rs`), and ONNX Runtime takes all memory of its tensors from one arena
//! that ends there (`runtime/library.rs`).

use audit_base::Error;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// The share of the free memory that is left to everything else: to this program's own data and to other
/// programs.
const RESERVE: u64 = 10;
/// The least that is left to them, in bytes.
const LEAST_RESERVE: u64 = 256 << 20;

/// The limit of this process, once it is settled.
static LIMIT: OnceLock<Option<Limit>> = OnceLock::new();

/// A number of bytes, written as "4G", "1.5 GiB" or "512M". Units are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u64); 5] = [("B", 0), ("K", 10), ("M", 20), ("G", 30), ("T", 40)];

impl FromStr for Bytes {
    type Err = Error;
    fn from_str(text: &str) -> Result<Bytes, Error> {
        let wrong = || Error::usage(format!("expected a size such as 4G or 512M; found {text:?}"));
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim().to_ascii_uppercase();
        let short = unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit);
        let short = if short.is_empty() { "B" } else { short };
        let (_, power) = UNITS.iter().find(|(name, _)| *name == short).ok_or_else(wrong)?;
        let bytes = number.parse::<f64>().map_err(|_| wrong())? * (1u64 << power) as f64;
        // More than any address space has, or nothing.
        if !(1.0..1e18).contains(&bytes) {
            return Err(wrong());
        }
        Ok(Bytes(bytes as u64))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_units = |power: u64| self.0 as f64 / (1u64 << power) as f64;
        match self.0 {
            u64::MAX => write!(f, "more than 2^64 bytes"),
            b if b >= 1 << 30 => write!(f, "{:.1} GiB", in_units(30)),
            b if b >= 1 << 20 => write!(f, "{:.0} MiB", in_units(20)),
            b => write!(f, "{b} bytes"),
        }
    }
}

/// How much memory a model may use.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The bytes.
    pub bytes: u64,
    /// Whether `--memory` states them.
    stated: bool,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = Bytes(self.bytes);
        match self.stated {
            true => write!(f, "--memory allows {bytes}"),
            false => write!(f, "a model may use {bytes} here, the free memory less a reserve"),
        }
    }
}

/// Settles the limit of this process, unless it is settled: `stated`, or what is free now less a reserve.
pub(super) fn settle(stated: Option<Bytes>) {
    LIMIT.get_or_init(|| match stated {
        Some(Bytes(bytes)) => Some(Limit { bytes, stated: true }),
        None => free().map(|free| Limit { bytes: less_reserve(free), stated: false }),
    });
}

fn less_reserve(free: u64) -> u64 {
    free.saturating_sub((free / RESERVE).max(LEAST_RESERVE))
}

/// How much memory models may use; `None` if nobody states it and the system does not say what is free.
pub fn limit() -> Option<Limit> {
    settle(None);
    *LIMIT.get().unwrap_or(&None)
}

/// The error (exit code 3) for a model that needs more memory than it may use. `what` says what needs how
/// much, such as "Expand "x" makes y of 8.0 GiB".
pub fn exceeded(what: impl fmt::Display) -> Error {
    let limit =
        limit().map_or_else(|| "this is more than the machine gives".into(), |limit| limit.to_string());
    Error::model(format!(
        "{what}, and {limit}. If the file is not damaged: --memory SIZE sets another limit, --batch asks for fewer images at a time, \
         --size for smaller ones"
    ))
}

/// Memory that is free on this machine, and for this process where the system limits it.
#[cfg(target_os = "linux")]
fn free() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let about = read("/proc/meminfo")?;
    let line = about.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let machine = line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024;
    let groups = read("/proc/self/cgroup").map_or(Vec::new(), |groups| groups_of(&groups));
    Some(groups.iter().filter_map(|group| left_in(group, &read)).fold(machine, u64::min))
}

/// The folder of a control group and the names of its files: the limit, what is used, and the line of
/// `memory.stat` with what the system would give back.
#[cfg(target_os = "linux")]
type ControlGroup = (String, [&'static str; 3]);

/// The control groups of a process and those around them, from its `/proc/self/cgroup`. A limit of any of
/// them holds.
#[cfg(target_os = "linux")]
fn groups_of(cgroups: &str) -> Vec<ControlGroup> {
    const UNIFIED: [&str; 3] = ["memory.max", "memory.current", "inactive_file"];
    const FIRST: [&str; 3] = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];
    let mut groups = Vec::new();
    for line in cgroups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, files) = match controllers {
            "" => ("/sys/fs/cgroup", UNIFIED),
            some if some.split(',').any(|c| c == "memory") => ("/sys/fs/cgroup/memory", FIRST),
            _ => continue,
        };
        // Within a container the path may be the host's, and the limit is that of the root.
        let folders = std::path::Path::new(path).ancestors();
        groups.extend(folders.map(|at| (format!("{root}{}", at.display()), files)));
    }
    groups
}

/// Bytes that a control group leaves to its processes; `None` if it sets no limit.
#[cfg(target_os = "linux")]
fn left_in(
    (folder, [most, used, reclaimable]): &ControlGroup,
    read: &dyn Fn(&str) -> Option<String>,
) -> Option<u64> {
    let number = |file: &str| read(&format!("{folder}/{file}"))?.trim().parse::<u64>().ok();
    let (most, used) = (number(most)?, number(used)?);
    let back = read(&format!("{folder}/memory.stat")).and_then(|stat| {
        let line = stat.lines().find_map(|line| line.strip_prefix(reclaimable)?.strip_prefix(' '))?;
        line.trim().parse::<u64>().ok()
    });
    Some(most.saturating_sub(used.saturating_sub(back.unwrap_or(0))))
}

/// macOS says what the machine has, and nothing as simple of what is free.
#[cfg(target_os = "macos")]
#[allow(unsafe_code)]
fn free() -> Option<u64> {
    let (mut bytes, mut size) = (0u64, size_of::<u64>());
    // SAFETY: the name is a zero-terminated string, and the result is a local of the size that is stated.
    let failed = unsafe {
        libc::sysctlbyname(
            c"hw.memsize".as_ptr(),
            (&raw mut bytes).cast(),
            &mut size,
            std::ptr::null_mut(),
            0,
        )
    };
    (failed == 0 && size == size_of::<u64>()).then_some(bytes)
}

#[cfg(windows)]
#[allow(unsafe_code)]
fn free() -> Option<u64> {
    /// MEMORYSTATUSEX of the Windows API.
    #[repr(C)]
    struct Status {
        length: u32,
        load: u32,
        physical: [u64; 2],
        page_file: [u64; 2],
        addresses: [u64; 2],
        extended: u64,
    }
    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn GlobalMemoryStatusEx(status: *mut Status) -> i32;
    }
    let mut status = Status {
        length: size_of::<Status>() as u32,
        load: 0,
        physical: [0; 2],
        page_file: [0; 2],
        addresses: [0; 2],
        extended: 0,
    };
    // SAFETY: the argument is a local of the size that its first field states.
    let done = unsafe { GlobalMemoryStatusEx(&mut status) };
    (done != 0).then_some(status.physical[1])
}

#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
fn free() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("4G", 4 << 30),
            ("4GiB", 4 << 30),
            ("1.5 gb", 3 << 29),
            ("512M", 512 << 20),
            ("64k", 64 << 10),
            ("1000", 1000),
            ("7B", 7),
            ("1T", 1 << 40),
        ] {
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes(bytes), "{text}");
        }
        for text in ["", "G", "4X", "4 G G", "-1G", "0", "1e3G", "9999999T", "1..2G"] {
            let e = text.parse::<Bytes>().unwrap_err();
            assert!(e.message.contains("4G or 512M"), "{text}: {e}");
        }
        let shown = |bytes| Bytes(bytes).to_string();
        assert_eq!([900, 5 << 20, 3 << 29].map(shown), ["900 bytes", "5 MiB", "1.5 GiB"]);
    }

    #[test]
    fn a_reserve_is_left() {
        assert_eq!(less_reserve(10 << 30), 9 << 30);
        assert_eq!(less_reserve(1 << 30), 768 << 20);
        assert_eq!(less_reserve(100 << 20), 0);
    }

    /// The limit of a container, in both versions of control groups, and the limits around it.
    #[cfg(target_os = "linux")]
    #[test]
    fn control_groups_limit_what_is_free() {
        let names =
            |groups: &str| groups_of(groups).into_iter().map(|(folder, _)| folder).collect::<Vec<_>>();
        assert_eq!(names("0::/a/b\n"), ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup/"]);
        assert_eq!(
            names("5:cpu,memory:/d\n1:name=systemd:/d\n"),
            ["/sys/fs/cgroup/memory/d", "/sys/fs/cgroup/memory/"]
        );
        let left = |most: &str| {
            let group = groups_of("0::/a").remove(0);
            left_in(&group, &|path| match path {
                "/sys/fs/cgroup/a/memory.max" => Some(format!("{most}\n")),
                "/sys/fs/cgroup/a/memory.current" => Some("700\n".into()),
                "/sys/fs/cgroup/a/memory.stat" => Some("anon 400\ninactive_file 300\nactive_file 7\n".into()),
                _ => None,
            })
        };
        // 300 of the 700 are files' contents, which the system gives back.
        assert_eq!([left("1000"), left("100"), left("max")], [Some(600), Some(0), None]);
        assert!(free().is_some_and(|bytes| bytes > 0));
    }
}
