//! Who started this process as one rank of several: the only place that reads launchers' environment variables.

/// An MPI launcher that started this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// What to call it in a message.
    pub name: &'static str,
    /// This process's rank according to the launcher.
    pub rank: usize,
    /// How many ranks it started.
    pub n_ranks: usize,
    /// How many of them are on this machine; 1 where the launcher does not tell.
    pub local_ranks: usize,
    /// This process's index among those.
    pub local_rank: usize,
}

/// A launcher's name and the variables that tell rank and ranks of the job, and rank and ranks on this machine.
type Variables = (&'static str, [&'static str; 2], [&'static str; 2]);

/// Launchers by the variables that they set, most specific first. Open MPI also sets `PMIX_RANK`, and `srun` may set `PMI_SIZE`.
const LAUNCHERS: [Variables; 4] = [
    (
        "Open MPI's mpirun",
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
        ["OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"],
    ),
    ("MPICH's mpirun", ["PMI_RANK", "PMI_SIZE"], ["MPI_LOCALRANKID", "MPI_LOCALNRANKS"]),
    ("an MPI launcher", ["MPI_RANKID", "MPI_NRANKS"], ["MPI_LOCALRANKID", "MPI_LOCALNRANKS"]),
    // Set by srun for its steps, unlike SLURM_NTASKS, which a batch script has too.
    (
        "srun",
        ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],
        ["SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"],
    ),
];

/// The launcher that started this process, if its environment says that there is one. A count without a rank, or values that
/// are no numbers, are ignored.
#[must_use]
pub fn launcher() -> Option<Launcher> {
    launcher_from(|name| std::env::var(name).ok())
}

fn launcher_from(variable: impl Fn(&str) -> Option<String>) -> Option<Launcher> {
    let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
    LAUNCHERS.iter().find_map(|&(name, job, machine)| {
        let (rank, n_ranks) = (number(job[0])?, number(job[1])?);
        let node = number("SLURM_NODEID").unwrap_or(0);
        let local_ranks = variable(machine[1]).and_then(|counts| count_on_node(&counts, node));
        let local_rank = number(machine[0]);
        let local = local_rank.zip(local_ranks).filter(|(rank, ranks)| rank < ranks);
        let (local_rank, local_ranks) = local.unwrap_or((0, 1));
        (rank < n_ranks).then_some(Launcher { name, rank, n_ranks, local_ranks, local_rank })
    })
}

/// The count of the `node`-th machine in a list like srun's `2(x3),1`: three machines with two ranks, then one with one.
/// Other launchers give one number, their machine's own.
fn count_on_node(counts: &str, node: usize) -> Option<usize> {
    let mut machines = 0;
    for entry in counts.trim().split(',') {
        let (count, times) = match entry.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
            None => (entry, 1),
        };
        let count = count.parse().ok()?;
        machines += times;
        // A single number stands for this machine, whichever it is.
        if node < machines || entry == counts.trim() && times == 1 {
            return Some(count);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(environment: &[(&str, &str)], expected: Option<(usize, usize)>) {
        let lookup = |name: &str| {
            environment
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        };
        let found = launcher_from(lookup).map(|launcher| (launcher.rank, launcher.n_ranks));
        assert_eq!(found, expected);
    }

    #[test]
    fn launchers_are_told_by_their_variables() {
        check(&[], None);
        check(&[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")], Some((1, 4)));
        check(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")], Some((0, 2)));
        check(&[("SLURM_PROCID", "2"), ("SLURM_STEP_NUM_TASKS", "3")], Some((2, 3)));
    }

    #[test]
    fn ranks_on_this_machine_are_told_by_each_launcher() {
        let local = |environment: &[(&str, &str)]| {
            let lookup = |name: &str| {
                let found = environment.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            launcher_from(lookup).map(|launcher| (launcher.local_rank, launcher.local_ranks))
        };
        let open_mpi = [
            ("OMPI_COMM_WORLD_RANK", "5"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
        ];
        assert_eq!(local(&open_mpi), Some((1, 4)));
        let mpich = [
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "2"),
            ("MPI_LOCALRANKID", "1"),
            ("MPI_LOCALNRANKS", "2"),
        ];
        assert_eq!(local(&mpich), Some((1, 2)));
        let srun = |node, local_rank, counts| {
            local(&[
                ("SLURM_PROCID", "3"),
                ("SLURM_STEP_NUM_TASKS", "7"),
                ("SLURM_NODEID", node),
                ("SLURM_LOCALID", local_rank),
                ("SLURM_STEP_TASKS_PER_NODE", counts),
            ])
        };
        assert_eq!(srun("1", "1", "2(x3),1"), Some((1, 2)));
        assert_eq!(srun("3", "0", "2(x3),1"), Some((0, 1)));
        assert_eq!(srun("0", "3", "4,3"), Some((3, 4)));
        assert_eq!(srun("1", "2", "4,3"), Some((2, 3)));
        assert_eq!(srun("1", "2", "nonsense"), Some((0, 1)));
    }

    #[test]
    fn a_batch_script_is_no_launcher() {
        check(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")], None);
    }

    #[test]
    fn nonsense_is_ignored() {
        check(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")], None);
        check(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")], None);
        check(&[("PMI_SIZE", "2")], None);
    }
}
