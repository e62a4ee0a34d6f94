//! The memory of the host that is free.

/// Memory that is free on this machine, and for this process where the system limits it.
#[cfg(target_os = "linux")]
pub fn free() -> Option<u64> {
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
pub fn free() -> Option<u64> {
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

/// The physical memory that is available.
#[cfg(windows)]
#[allow(unsafe_code)]
pub fn free() -> Option<u64> {
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

/// Other systems are not asked.
#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
pub fn free() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use super::*;

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
