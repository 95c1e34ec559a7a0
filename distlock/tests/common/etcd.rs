//! An etcd member of a test's own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

use super::redis::free_port;
use super::until;

pub(crate) struct Etcd {
    server: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Etcd {
    /// Starts a cluster of one member and waits until it serves.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let it = Self::spawn("", flags);
        until("etcd to serve", || it.try_ctl(&["endpoint", "health"]));
        it
    }

    /// Starts one member of three, whose fellows are not there: it takes connections and has no leader.
    pub(crate) fn without_quorum() -> Self {
        let absent = format!(",two=http://127.0.0.1:{},three=http://127.0.0.1:{}", free_port(), free_port());
        let it = Self::spawn(&absent, &[]);
        until("etcd to listen", || std::net::TcpStream::connect(("127.0.0.1", it.port)).is_ok());
        it
    }

    fn spawn(fellows: &str, flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", free_port()));
        let server = Command::new("etcd")
            .args(["--name", "one", "--initial-cluster", &format!("one={peer}{fellows}"), "--log-level", "error"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer, "--logger", "zap"])
            .args(["--heartbeat-interval", "50", "--election-timeout", "250", "--data-dir"])
            .arg(dir.path().join("data"))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd does not start; install the package etcd-server");
        Self { server, port, _dir: dir }
    }

    pub(crate) fn url(&self, login: &str) -> String {
        format!("etcd://{login}127.0.0.1:{}", self.port)
    }

    #[track_caller]
    pub(crate) fn ctl(&self, args: &[&str]) {
        assert!(self.try_ctl(args), "etcdctl {args:?} failed");
    }

    pub(crate) fn try_ctl<A: AsRef<OsStr>>(&self, args: &[A]) -> bool {
        let status = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &format!("127.0.0.1:{}", self.port)])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.expect("etcdctl does not start; install the package etcd-client").success()
    }

    /// Demands logins: `app` may use names that start with `jobs/`, `half` these without the keys beside them, `other` nothing at all.
    pub(crate) fn guard(&self) {
        // The first byte is no UTF-8, which an argument may be all the same.
        let helpers = OsStr::from_bytes(b"\xffdistlock/");
        let names = OsStr::new("jobs/");
        for user in ["root:toor", "app:s3cret", "half:s3cret", "other:s3cret"] {
            self.ctl(&["user", "add", user]);
        }
        for (role, prefixes) in [("locks", &[names, helpers][..]), ("half", &[names])] {
            self.ctl(&["role", "add", role]);
            for prefix in prefixes {
                let grant = ["role", "grant-permission", role, "readwrite", "--prefix"].map(OsStr::new);
                assert!(self.try_ctl(&[&grant[..], &[*prefix]].concat()));
            }
        }
        for (user, role) in [("root", "root"), ("app", "locks"), ("half", "half")] {
            self.ctl(&["user", "grant-role", user, role]);
        }
        self.ctl(&["auth", "enable"]);
    }

    /// Writes until its quota is reached.
    pub(crate) fn fill(&self) {
        let value = "x".repeat(100_000);
        let full = (0..200).any(|i| !self.try_ctl(&["put", &format!("filler/{i}"), &value]));
        assert!(full, "the quota was not reached");
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.server.id() as i32), signal).unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
