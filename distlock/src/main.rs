//! The command `distlock`: runs commands under a lock, and shows or breaks locks.

#[cfg(unix)]
mod cli;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    cli::main().into()
}

#[cfg(not(unix))]
compile_error!("the command line needs Unix; the library does not: build it with --no-default-features");
