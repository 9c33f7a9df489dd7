//! Two hosts on this machine with a slow link between them: network namespaces, made by `tests/net/hosts`.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::steps::{root, step};

/// The address of a host on the shaped link.
pub(super) fn address(host: usize) -> String {
    format!("10.78.0.{host}")
}

/// The interface of each host on that link.
pub(super) const INTERFACE: &str = "eth0";

/// Hosts that are up; taken down when this goes.
#[derive(Debug)]
pub(super) struct Hosts {
    /// One core of this machine for each host.
    cores: Vec<usize>,
    /// No program on them may take longer, in seconds.
    limit: u64,
}

impl Hosts {
    /// Brings up a host a core. Needs root.
    pub(super) fn up(cores: &[usize], rate: &str, limit: u64) -> Result<Self, Failure> {
        // Made first, so that a half-made network is taken down as well.
        let hosts = Self { cores: cores.to_vec(), limit };
        let mut command = Command::new(script());
        command.args(["up", &cores.len().to_string(), rate]);
        step("hosts (network namespaces, which need root)", &mut command)?;
        Ok(hosts)
    }

    /// Limits every link to another rate.
    pub(super) fn set_rate(&self, rate: &str) -> Result<(), Failure> {
        step(&format!("links of {rate}"), Command::new(script()).args(["rate", rate]))
    }

    /// A program on one host, counted from 1, on that host's core alone.
    pub(super) fn on(&self, host: usize, program: &Command) -> Command {
        let mut command = self.script();
        command.args(["exec", &host.to_string(), "taskset", "--cpu-list"]);
        command.arg(self.cores[host - 1].to_string());
        finish(command, program)
    }

    /// One rank of a program on every host, each on its host's core alone.
    pub(super) fn mpirun(&self, program: &Command) -> Command {
        let cores: Vec<String> = self.cores.iter().map(usize::to_string).collect();
        // mpirun sees each host as the whole machine, and would bind all of them to the same cores.
        let on_its_core = format!(
            "set -- {} \"$@\"; eval \"core=\\${{$((OMPI_COMM_WORLD_RANK + 1))}}\"; shift {}; \
             exec taskset --cpu-list $core \"$@\"",
            cores.join(" "),
            cores.len()
        );
        let mut command = self.script();
        command.args(["mpirun", "sh", "-c", &on_its_core, "sh"]);
        finish(command, program)
    }

    fn script(&self) -> Command {
        let mut command = Command::new("timeout");
        command.arg(self.limit.to_string()).arg(script());
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // The next `up` begins by taking down what is left.
        let _ = Command::new(script()).arg("down").status();
    }
}

fn script() -> PathBuf {
    root().join("tests/net/hosts")
}

/// Appends a program with its arguments, and takes over its directory.
fn finish(mut command: Command, program: &Command) -> Command {
    command.arg(program.get_program()).args(program.get_args());
    if let Some(directory) = program.get_current_dir() {
        command.current_dir(directory);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> Vec<String> {
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Not made by `up`, and so not to be taken down.
    fn hosts() -> std::mem::ManuallyDrop<Hosts> {
        std::mem::ManuallyDrop::new(Hosts { cores: vec![4, 7], limit: 60 })
    }

    #[test]
    fn a_program_on_a_host_has_that_hosts_core() {
        let command = hosts().on(2, Command::new("program").arg("--flag"));
        let words = words(&command);
        assert_eq!(words[2..], ["exec", "2", "taskset", "--cpu-list", "7", "program", "--flag"]);
    }

    #[test]
    fn ranks_choose_their_hosts_cores_by_their_number() {
        let command = hosts().mpirun(Command::new("program").arg("--flag"));
        let words = words(&command);
        assert_eq!(words[2..5], ["mpirun", "sh", "-c"]);
        let script = &words[5];
        for (rank, core) in [("0", "4"), ("1", "7")] {
            // The shell's own words, with what would start the program replaced by what shows it.
            let shown = script.replace("exec taskset --cpu-list", "echo");
            let output = Command::new("sh")
                .args(["-c", &shown, "sh", "program", "--flag"])
                .env("OMPI_COMM_WORLD_RANK", rank)
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(text.trim(), format!("{core} program --flag"));
        }
    }
}
