//! The tool in a terminal, as a shell starts it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Lab, read, until};
use nix::libc;
use nix::pty::openpty;

/// A session of its own on a terminal of its own. What it prints is read all the time.
struct Session {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    leader: Child,
    _tty: OwnedFd,
}

impl Session {
    fn start(mut command: Command) -> Self {
        let pty = openpty(None, None).unwrap();
        let tty = pty.slave;
        let stream = || tty.try_clone().unwrap();
        command.stdin(stream()).stdout(stream()).stderr(stream());
        // SAFETY: between fork and exec there are only two system calls.
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                nix::errno::Errno::result(libc::ioctl(0, libc::TIOCSCTTY, 0))?;
                Ok(())
            });
        }
        let leader = command.spawn().unwrap();
        let keyboard = File::from(pty.master);
        let mut reader = keyboard.try_clone().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..n]));
            }
        });
        Self { keyboard, screen, leader, _tty: tty }
    }

    fn tool(lab: &Lab, args: &[&str]) -> Self {
        Self::start(lab.tool(args))
    }

    /// An interactive shell with job control, in which `distlock` is the tool.
    fn shell(lab: &Lab) -> Self {
        let mut shell = Command::new("bash");
        shell.args(["--norc", "--noprofile", "-i"]).current_dir(lab.home());
        shell.env("HOME", lab.home()).env("DISTLOCK_URL", lab.url()).env("PS1", "ready> ").env("TERM", "dumb");
        let mut session = Self::start(shell);
        session.sees("ready> ");
        session.types(&format!("alias distlock={}\n", env!("CARGO_BIN_EXE_distlock")));
        session
    }

    fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    #[track_caller]
    fn sees(&self, text: &str) {
        let start = std::time::Instant::now();
        while !self.screen.lock().unwrap().contains(text) {
            assert!(start.elapsed() < common::BOUND, "no {text:?} on the screen: {:?}", self.screen.lock().unwrap());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn foreground(&self) -> i32 {
        // SAFETY: the call only reads.
        unsafe { libc::tcgetpgrp(self.keyboard.as_raw_fd()) }
    }

    fn code(mut self) -> Option<i32> {
        until("the session to end", || self.leader.try_wait().unwrap().is_some());
        self.leader.wait().unwrap().code()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.leader.kill();
        let _ = self.leader.wait();
    }
}

const COUNT_INT: &str = "trap 'echo int >>ints' INT; echo up; until [ -e end ]; do sleep 0.02; done; exit 3";

#[test]
fn control_c_reaches_the_command_once_and_it_goes_on() {
    let lab = Lab::new();
    let mut session = Session::tool(&lab, &["run", "tty", "--", "sh", "-c", COUNT_INT]);
    session.sees("up");
    session.types("\x03");
    until("the signal to arrive", || !read(lab.path("ints")).is_empty());
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(read(lab.path("ints")), "int\n");
    std::fs::write(lab.path("end"), "").unwrap();
    assert_eq!(session.code(), Some(3));
}

#[test]
fn control_c_ends_a_tool_that_waits() {
    let lab = Lab::new();
    let _holder = lab.hold("tty", &[]);
    let mut session = Session::tool(&lab, &["-v", "run", "tty", "--", "true"]);
    session.sees("asking");
    session.types("\x03");
    assert_eq!(session.code(), Some(130));
}

#[test]
fn the_command_is_in_the_foreground_and_reads_the_terminal() {
    let lab = Lab::new();
    let script = "echo \"group $(cut -d' ' -f5 /proc/$$/stat)\"; read line; echo \"got $line\"";
    let mut session = Session::tool(&lab, &["run", "tty", "--", "sh", "-c", script]);
    session.sees("group ");
    session.sees("\n");
    let screen = session.screen.lock().unwrap().clone();
    let group: i32 = screen.split_once("group ").unwrap().1.trim().parse().unwrap();
    assert_eq!(session.foreground(), group);
    assert_ne!(session.leader.id() as i32, group);
    session.types("hello\n");
    session.sees("got hello");
    assert_eq!(session.code(), Some(0));
}

#[test]
fn a_shell_gets_its_terminal_back() {
    let lab = Lab::new();
    let mut shell = Session::shell(&lab);
    for (script, shown) in [("exit 5", "code 5;"), ("stty raw -echo; kill -9 $$", "code 137;"), ("exit 6", "code 6;")] {
        shell.types(&format!("distlock run tty -- sh -c '{script}'; echo \"code\" \"$?;\"\n"));
        shell.sees(shown);
    }
    shell.types("stty -a | tr ';' '\\n' | grep -w -e icanon -e echo >tty; exit 0\n");
    assert_eq!(shell.code(), Some(0));
    assert!(!read(lab.path("tty")).contains("-icanon"), "{}", read(lab.path("tty")));
}

#[test]
fn control_z_stops_both_and_fg_continues_both() {
    let lab = Lab::new();
    let mut shell = Session::shell(&lab);
    shell.types("distlock run tty -- sh -c 'echo up; read line; echo \"got $line.\"; exit 4'; echo \"code $?;\"\n");
    shell.sees("up\r\n");
    shell.types("\x1a");
    shell.sees("Stopped");
    shell.types("fg; echo \"now\" \"$?;\"\n");
    shell.types("more\n");
    shell.sees("got more.");
    shell.sees("now 4;");
    shell.types("exit 0\n");
    assert_eq!(shell.code(), Some(0));
}

#[test]
fn a_lock_that_ran_out_while_stopped_is_lost() {
    let lab = Lab::new();
    let mut shell = Session::shell(&lab);
    shell.types("distlock run tty --ttl 300ms -- sh -c 'echo up; read line; touch ran'\n");
    shell.sees("up\r\n");
    shell.types("\x1a");
    shell.sees("Stopped");
    assert_eq!(lab.run(&["run", "tty", "--wait", "5s", "--", "true"]).code(), 0);
    shell.types("fg; echo \"code\" \"$?;\"\n");
    shell.sees("code 79;");
    assert!(!lab.path("ran").exists());
    shell.types("exit 0\n");
    assert_eq!(shell.code(), Some(0));
}

#[test]
fn a_message_from_the_background_does_not_stop_the_tool() {
    let lab = Lab::new();
    let script = "stty tostop; trap \"\" TERM; echo up; while :; do read line; done";
    let mut shell = Session::shell(&lab);
    shell.types(&format!("distlock run tty --ttl 600ms -- sh -c '{script}'; echo \"code\" \"$?;\"\n"));
    shell.sees("up\r\n");
    assert_eq!(lab.run(&["revoke", "tty"]).code(), 0);
    shell.sees("was lost: it was revoked");
    shell.sees("code 79;");
    shell.types("exit 0\n");
    assert_eq!(shell.code(), Some(0));
}

#[test]
fn a_pager_behind_the_tool_keeps_the_terminal() {
    let lab = Lab::new();
    let mut shell = Session::shell(&lab);
    shell
        .types("distlock run tty -- sh -c 'echo one; sleep 0.3' | sh -c 'read a; read b </dev/tty; echo \"$a $b.\"'\n");
    std::thread::sleep(Duration::from_millis(100));
    shell.types("two\n");
    shell.sees("one two.");
    shell.types("exit 0\n");
    assert_eq!(shell.code(), Some(0));
}
