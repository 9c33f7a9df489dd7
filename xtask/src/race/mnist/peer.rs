//! The other side of the race: PyTorch, in a program of ours that does the same.

use super::{Args, Epoch, complete};
use crate::failure::Failure;
use crate::race::programs::{PEER, json_lines, number, output, peer};
use crate::steps::say;

pub(super) fn run(args: &Args) -> Result<Vec<Epoch>, Failure> {
    say(&format!("-- {PEER}"));
    let mut train = peer(&args.common.python, "lenet_mnist.py");
    train.args(["--epochs", &args.epochs.to_string(), "--batch", &args.batch.to_string()]).args([
        "--threads",
        &args.common.threads.to_string(),
        "datasets/mnist",
    ]);
    let text = output(PEER, &mut train)?;
    say(text.trim_end());
    let epochs: Result<_, _> = json_lines(&text).map(|line| epoch(&line)).collect();
    complete(epochs?, args, PEER)
}

fn epoch(line: &serde_json::Value) -> Result<Epoch, Failure> {
    let field = |key| number(line, key, PEER);
    Ok(Epoch { seconds: field("seconds")?, top1: field("top1")? })
}
