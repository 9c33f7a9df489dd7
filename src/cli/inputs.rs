//! What several subcommands take: a network, a data set, an instruction set.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockstep::comm::LinkModel;
use lockstep::data::{Dataset, Mnist, SampleShape, Split, Synthetic, bundled_mnist};
use lockstep::graph::{Network, zoo};
use lockstep::ops::Isa;
use lockstep::{RunError, read_isa_choice};
use serde::Deserialize;

use super::bad_flag;

/// Samples of a synthetic data set.
const SYNTHETIC_SAMPLES: usize = 4096;

/// A network by name, or from a JSON file.
pub(super) fn network(choice: &str) -> Result<Arc<Network>, RunError> {
    let network = if choice.ends_with(".json") {
        Network::from_json_file(Path::new(choice))?
    } else {
        zoo::by_name(choice)?
    };
    Ok(Arc::new(network))
}

/// A link, as `lockstep bench comm --json FILE` measured it.
pub(super) fn link(path: Option<&Path>) -> Result<LinkModel, RunError> {
    /// Of that file, what is needed.
    #[derive(Deserialize)]
    struct Measured {
        link: LinkModel,
    }
    let Some(path) = path else { return Ok(LinkModel::default()) };
    let refuse = |reason: String| bad_flag("--link", &path.display(), reason);
    let text = fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    let measured: Measured = serde_json::from_str(&text).map_err(|error| {
        refuse(format!("{error}; it must be what `lockstep bench comm --json FILE` writes"))
    })?;
    let LinkModel { latency, seconds_per_byte, seconds_per_added_byte, congestion } = measured.link;
    let numbers = [latency, seconds_per_byte, seconds_per_added_byte, congestion];
    if numbers.iter().any(|n| !n.is_finite() || *n < 0.0) || seconds_per_byte == 0.0 {
        return Err(refuse("its numbers must be at least 0, and seconds_per_byte more".to_owned()));
    }
    Ok(measured.link)
}

/// A data set's two parts.
pub(super) struct Data {
    pub(super) train: Arc<dyn Dataset>,
    pub(super) test: Arc<dyn Dataset>,
}

/// One part of a data set: `mnist`, `mnist:DIR` or `synthetic`.
pub(super) fn dataset(
    choice: &str,
    split: Split,
    network: &Network,
    seed: u64,
) -> Result<Arc<dyn Dataset>, RunError> {
    match choice.split_once(':') {
        None if choice == "mnist" => Ok(Arc::new(Mnist::open(&bundled_mnist()?, split)?)),
        Some(("mnist", directory)) => Ok(Arc::new(Mnist::open(&PathBuf::from(directory), split)?)),
        None if choice == "synthetic" => {
            let (c, h, w) = network.layer(network.input()).shape.maps();
            // The two parts are different samples of the same classes.
            let (len, first) = match split {
                Split::Train => (SYNTHETIC_SAMPLES, 0),
                Split::Test => (SYNTHETIC_SAMPLES / 4, SYNTHETIC_SAMPLES),
            };
            let shape = SampleShape { c, h, w };
            Ok(Arc::new(Synthetic::new(shape, network.classes(), len, seed).starting_at(first)))
        }
        _ => Err(bad_flag("--data", &choice, "use mnist, mnist:DIRECTORY or synthetic")),
    }
}

/// Both parts.
pub(super) fn data(choice: &str, network: &Network, seed: u64) -> Result<Data, RunError> {
    Ok(Data {
        train: dataset(choice, Split::Train, network, seed)?,
        test: dataset(choice, Split::Test, network, seed)?,
    })
}

/// The instruction set that `LOCKSTEP_ISA` asks for, or the best that the CPU has.
pub(super) fn isa() -> Result<Isa, RunError> {
    match read_isa_choice() {
        Some(name) => Ok(Isa::named(&name)?),
        None => Ok(Isa::detect()),
    }
}
