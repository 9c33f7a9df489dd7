//! The other side of the race: PyTorch, in a program of ours that does the same.

use std::process::{Command, Stdio};

use super::{Args, Epoch, complete, json_lines, number};
use crate::failure::Failure;
use crate::steps::{root, say};

const PROGRAM: &str = "PyTorch";

pub(super) fn run(args: &Args) -> Result<Vec<Epoch>, Failure> {
    say(&format!("-- {PROGRAM}"));
    let mut train = Command::new(&args.python);
    train
        .current_dir(root())
        .arg("benches/peers/lenet_mnist.py")
        .args(["--epochs", &args.epochs.to_string(), "--batch", &args.batch.to_string()])
        .args(["--threads", &args.threads.to_string(), "datasets/mnist"])
        .stderr(Stdio::inherit());
    let output = train
        .output()
        .map_err(|source| Failure::Start { program: args.python.display().to_string(), source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    say(text.trim_end());
    if !output.status.success() {
        return Err(Failure::Step { name: PROGRAM.to_owned(), status: output.status });
    }
    let epochs: Result<_, _> = json_lines(&text).map(|line| epoch(&line)).collect();
    complete(epochs?, args, PROGRAM)
}

fn epoch(line: &serde_json::Value) -> Result<Epoch, Failure> {
    let field = |key| number(line, key, PROGRAM);
    Ok(Epoch { seconds: field("seconds")?, top1: field("top1")? })
}
