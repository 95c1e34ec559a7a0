//! The file and its folder, before SQLite sees them.

use std::fs::TryLockError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lock_core::{ErrorKind, LockError};

/// Which file a path names. While a connection keeps a file open, no other gets its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    /// The file of this path now; `None` when there is none. One look into the kernel's tables, which is why it is made in async code.
    #[cfg(unix)]
    pub(crate) fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).ok().map(|file| Self(file.dev(), file.ino()))
    }

    /// Elsewhere an open file cannot be deleted, so that its presence says enough.
    #[cfg(not(unix))]
    pub(crate) fn of(path: &Path) -> Option<Self> {
        path.exists().then_some(Self(0, 0))
    }
}

/// The file beside it that SQLite calls by `suffix`, such as `-wal`.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Makes sure that there is a file that this user may use, and says what is wrong otherwise. Never opens an existing file: closing it again
/// would drop the locks that SQLite holds on it for the whole process. Blocks.
pub(crate) fn prepare(path: &Path) -> Result<(), LockError> {
    match std::fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => create(path).map_err(|e| refused(path, "create", e))?,
        Err(e) => return Err(refused(path, "look at", e)),
        Ok(file) if file.is_dir() => {
            return Err(config(path, "this is a folder", "name a file in it, such as locks.db"));
        }
        Ok(file) if !file.is_file() => {
            return Err(config(path, "this is no regular file", "name another file"));
        }
        Ok(_) => {}
    }
    check_rights(path)
}

/// Creates the folder and an empty file, for this user alone.
fn create(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    make_folder(folder)?;
    // One creator at a time, since the next step must not hit the files of a database that another has just created.
    let turn = std::fs::File::open(folder)?;
    take_turn(&turn)?;
    if FileId::of(path).is_some() {
        return Ok(());
    }
    // What a deleted database left would be taken for the new one's.
    for suffix in ["-wal", "-shm", "-journal"] {
        match std::fs::remove_file(beside(path, suffix)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    make_file(path)
}

/// Locks the folder, for no longer than somebody may hold it who makes a file.
fn take_turn(folder: &std::fs::File) -> io::Result<()> {
    for _ in 0..500 {
        match folder.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(4)),
            Err(TryLockError::Error(e)) => return Err(e),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "another program keeps its folder locked"))
}

#[cfg(unix)]
fn make_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(not(unix))]
fn make_folder(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)
}

/// By `mknod`, which opens nothing: see [`prepare`].
#[cfg(target_os = "linux")]
fn make_file(path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    match mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        made => Ok(made?),
    }
}

#[cfg(not(target_os = "linux"))]
fn make_file(path: &Path) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

#[cfg(unix)]
fn check_rights(path: &Path) -> Result<(), LockError> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let folder = path.parent().unwrap_or(Path::new("/"));
    // SQLite keeps its log beside the file, so the folder must be writable too.
    for (what, access) in [(path, Access::READ_OK | Access::WRITE_OK), (folder, Access::WRITE_OK | Access::EXEC_OK)] {
        accessat(CWD, what, access, AtFlags::EACCESS).map_err(|e| refused(what, "write", e.into()))?;
    }
    match file_system(path) {
        Some(FileSystem::Network(name)) => Err(config(
            path,
            format!("the file is on a network file system ({name}), where SQLite's locks do not hold"),
            "name a file on a local disk, or use a server as backend",
        )),
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn check_rights(_path: &Path) -> Result<(), LockError> {
    Ok(())
}

/// What kind of file system a file is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// Its name; SQLite's shared memory does not work there.
    Network(&'static str),
    /// A program serves it: it may be local or not.
    Fuse,
    Local,
}

/// The file system of this path; `None` where the system does not tell.
#[cfg(target_os = "linux")]
pub(crate) fn file_system(path: &Path) -> Option<FileSystem> {
    let magic = rustix::fs::statfs(path).ok()?.f_type;
    // The numbers of linux/magic.h and of the file systems themselves.
    Some(match magic as u32 {
        0x6969 => FileSystem::Network("NFS"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => FileSystem::Network("SMB"),
        0x0102_1997 => FileSystem::Network("9p"),
        0x5346_414f | 0x6b41_4653 => FileSystem::Network("AFS"),
        0x00c3_6400 => FileSystem::Network("Ceph"),
        0x6573_5546 => FileSystem::Fuse,
        _ => FileSystem::Local,
    })
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn file_system(_path: &Path) -> Option<FileSystem> {
    None
}

/// The permission bits of this file.
#[cfg(unix)]
pub(crate) fn mode(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|file| file.mode() & 0o777)
}

/// How many bytes this user can still write to the disk of this file.
#[cfg(unix)]
pub(crate) fn free_space(path: &Path) -> Option<u64> {
    rustix::fs::statvfs(path).ok().map(|disk| disk.f_bavail * disk.f_frsize)
}

#[cfg(not(unix))]
pub(crate) fn mode(_path: &Path) -> Option<u32> {
    None
}

#[cfg(not(unix))]
pub(crate) fn free_space(_path: &Path) -> Option<u64> {
    None
}

fn refused(path: &Path, verb: &str, error: io::Error) -> LockError {
    let detail = format!("cannot {verb} {}{}", path.display(), owner_of(path));
    let (kind, advice) = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "give this user the right to read and write it, or name another file")
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename => (ErrorKind::Config, "check the path"),
        _ => (ErrorKind::Unavailable, "check the disk and the path"),
    };
    LockError::new(kind, detail)
        .backend(crate::BACKEND)
        .with_effect(lock_core::Effect::NotApplied)
        .advice(advice)
        .source(error)
}

/// Whose the file is, or the folder where it is missing, when it is another user's.
#[cfg(unix)]
fn owner_of(path: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let me = rustix::process::geteuid().as_raw();
    let metadata = std::fs::metadata(path).map(|it| (it, "")).or_else(|e| {
        let folder = path.parent().ok_or(e)?;
        Ok::<_, io::Error>((std::fs::metadata(folder)?, " in a folder"))
    });
    match metadata {
        Ok((it, place)) if it.uid() != me => format!("{place} of user {} as user {me}", it.uid()),
        _ => String::new(),
    }
}

#[cfg(not(unix))]
fn owner_of(_path: &Path) -> String {
    String::new()
}

fn config(path: &Path, detail: impl std::fmt::Display, advice: &str) -> LockError {
    LockError::new(ErrorKind::Config, format!("{}: {detail}", path.display())).backend(crate::BACKEND).advice(advice)
}
