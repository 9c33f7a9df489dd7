//! What the environment decides: the launcher, the instruction set. The only file that reads environment variables here.

use lockstep_comm::{CommError, launcher};

use crate::error::RunError;
use crate::trainer::Ranks;

/// What the command line says about ranks.
#[derive(Debug, Clone, Copy, Default)]
pub struct RankChoice {
    /// In-process ranks that were asked for.
    pub asked: Option<usize>,
}

/// In-process ranks, or one rank of an MPI job, by the launcher that started this process.
///
/// # Errors
/// Started by an MPI launcher with several ranks, but built without MPI, which would run that many separate jobs; or asked
/// for in-process ranks inside an MPI job.
pub fn choose_ranks(choice: RankChoice) -> Result<Ranks, RunError> {
    let Some(launcher) = launcher() else {
        return Ok(Ranks::InProcess(choice.asked.unwrap_or(1)));
    };
    if let Some(asked) = choice.asked.filter(|&asked| asked > 1) {
        return Err(RunError::Flag {
            flag: "--ranks",
            value: asked.to_string(),
            reason: format!(
                "{} has already started {} rank(s): leave the flag out",
                launcher.name, launcher.n_ranks
            ),
        });
    }
    if cfg!(feature = "mpi") {
        return Ok(Ranks::Mpi);
    }
    if launcher.n_ranks == 1 {
        return Ok(Ranks::InProcess(1));
    }
    Err(mpi_not_built().into())
}

/// The refusal of a program built without MPI that was started as one of several ranks.
pub(crate) fn mpi_not_built() -> CommError {
    let (name, n_ranks) = launcher().map_or(("mpirun", 0), |l| (l.name, l.n_ranks));
    CommError::MpiNotBuilt { launcher: name.to_owned(), n_ranks }
}

/// The instruction set that `LOCKSTEP_ISA` names, if it is set.
#[must_use]
pub fn read_isa_choice() -> Option<String> {
    std::env::var("LOCKSTEP_ISA").ok().filter(|name| !name.is_empty())
}

/// Whether this program can be a rank of an MPI job.
#[must_use]
pub fn mpi_description() -> String {
    if cfg!(feature = "mpi") {
        "built in".to_owned()
    } else {
        "not built in (cargo build --release --features mpi)".to_owned()
    }
}
