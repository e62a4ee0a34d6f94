//! Graphs that pass between this program and ONNX Runtime by a path, because its interface knows no other
//! way, or none that takes as little memory. They hold the user's model. So what the path names is a pipe: no
//! part of the model is written to a disk, no disk can be full, and nothing remains, however the process
//! ends. Windows has no paths of such pipes; there it is a file in a temporary folder.

#[cfg(not(unix))]
pub use folder::{receive, send};
#[cfg(unix)]
pub use pipes::{receive, send};

#[cfg(unix)]
mod pipes {
    use audit_base::{Error, Result};
    use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
    use std::os::fd::AsRawFd;
    use std::path::{Path, PathBuf};
    use std::thread;

    /// Both ends of a pipe.
    fn ends() -> Result<(PipeReader, PipeWriter)> {
        pipe().map_err(|e| Error::internal(format!("can't hand a graph to ONNX Runtime: {e}")))
    }

    fn path(end: &impl AsRawFd) -> PathBuf {
        format!("/dev/fd/{}", end.as_raw_fd()).into()
    }

    /// What `open` returns, which finds `parts` at the path that it gets, one after the other, and reads them
    /// once, from start to end.
    pub fn send<T>(
        mut parts: impl Iterator<Item = Vec<u8>> + Send + 'static,
        open: impl FnOnce(&Path) -> T,
    ) -> Result<T> {
        let (reader, mut writer) = ends()?;
        // It fails if the reader goes before the end, and who reads knows why.
        let feeder = thread::spawn(move || drop(parts.try_for_each(|part| writer.write_all(&part))));
        let opened = open(&path(&reader));
        drop(reader);
        let _ = feeder.join();
        Ok(opened)
    }

    /// What `write` returns, and the bytes that it wrote to each of the two paths that it gets, from start to
    /// end. Both are in one folder.
    pub fn receive<T>(write: impl FnOnce([&Path; 2]) -> T) -> Result<(T, [Vec<u8>; 2])> {
        let (first, second) = (ends()?, ends()?);
        let collect = |mut reader: PipeReader| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                reader.read_to_end(&mut bytes).map(|_| bytes)
            })
        };
        let collectors = [collect(first.0), collect(second.0)];
        let written = write([&path(&first.1), &path(&second.1)]);
        // The ends of the pipes, once nobody else has them open.
        drop((first.1, second.1));
        let [first, second] = collectors.map(|collector| {
            let bytes = collector.join().unwrap_or_else(|panicked| std::panic::resume_unwind(panicked));
            bytes.map_err(|e| Error::internal(format!("can't take a graph from ONNX Runtime: {e}")))
        });
        Ok((written, [first?, second?]))
    }
}

#[cfg(any(not(unix), test))]
mod folder {
    use audit_base::files::Scratch;
    use audit_base::{Error, Result};
    use std::fs::File;
    use std::io::{Error as Failure, ErrorKind, Write};
    use std::path::Path;

    pub fn send<T>(mut parts: impl Iterator<Item = Vec<u8>>, open: impl FnOnce(&Path) -> T) -> Result<T> {
        let folder = Scratch::new().map_err(failed)?;
        let path = folder.join("model.onnx");
        let mut file = File::create_new(&path).map_err(failed)?;
        parts.try_for_each(|part| file.write_all(&part)).map_err(failed)?;
        drop(file);
        Ok(open(&path))
    }

    pub fn receive<T>(write: impl FnOnce([&Path; 2]) -> T) -> Result<(T, [Vec<u8>; 2])> {
        let folder = Scratch::new().map_err(failed)?;
        let paths = ["specialised.onnx", "weights.bin"].map(|name| folder.join(name));
        let written = write([&paths[0], &paths[1]]);
        let [first, second] = paths.map(|path| match std::fs::read(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            read => read.map_err(failed),
        });
        Ok((written, [first?, second?]))
    }

    fn failed(e: Failure) -> Error {
        Error::internal(format!(
            "temporary folder {}: {e}. The model passes through a file there on its way to and from ONNX Runtime, and the file is \
             removed afterwards. fix: make room there for two copies of the model, or set TMP to another folder",
            std::env::temp_dir().display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// More than a pipe holds.
    fn large() -> Vec<u8> {
        (0..1_000_000u32).flat_map(u32::to_le_bytes).collect()
    }

    fn parts() -> impl Iterator<Item = Vec<u8>> + Send {
        let parts: Vec<Vec<u8>> = large().chunks(999_999).map(<[u8]>::to_vec).collect();
        parts.into_iter()
    }

    #[test]
    fn bytes_arrive_whole() {
        let read = |path: &Path| std::fs::read(path).unwrap();
        // The second first: both are read at any time.
        let write = |[first, second]: [&Path; 2]| {
            std::fs::write(second, large()).unwrap();
            std::fs::write(first, [1, 2]).unwrap();
        };
        assert!(send(parts(), read).unwrap() == large());
        assert!(folder::send(parts(), read).unwrap() == large());
        assert!(receive(write).unwrap().1 == [vec![1, 2], large()]);
        assert!(folder::receive(write).unwrap().1 == [vec![1, 2], large()]);
    }

    /// ONNX Runtime may refuse a graph before it has read all of it, or before it has written any.
    #[test]
    fn nobody_waits_for_who_stops_early() {
        use std::io::Read;
        let some = |path: &Path| std::fs::File::open(path).unwrap().read(&mut [0; 10]).unwrap();
        assert_eq!((send(parts(), some).unwrap(), send(parts(), |_| 0).unwrap()), (10, 0));
        let none: [Vec<u8>; 2] = Default::default();
        assert!(receive(|_| ()).unwrap().1 == none && folder::receive(|_| ()).unwrap().1 == none);
    }
}
