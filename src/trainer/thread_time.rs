//! How long single threads of this process have been on a core.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Time on a core of all this process's threads of one name; `None` where the system does not tell (it is Linux's `/proc`).
pub(super) fn cpu_time(name: &str) -> Option<Duration> {
    let mut found = None;
    for thread in fs::read_dir("/proc/self/task").ok()?.flatten() {
        // Threads may end while this looks at them: they count no more.
        let Ok(comm) = fs::read_to_string(thread.path().join("comm")) else { continue };
        if comm.trim_end() == name {
            let time = time_on_core(&thread.path()).unwrap_or_default();
            found = Some(found.unwrap_or(Duration::ZERO) + time);
        }
    }
    found
}

/// The first number of `schedstat`, in nanoseconds; `stat` counts in ticks of 10 ms, too coarse for a short run.
fn time_on_core(thread: &Path) -> Option<Duration> {
    let text = fs::read_to_string(thread.join("schedstat")).ok()?;
    let nanoseconds = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::Builder;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_thread_that_computes_is_found_by_its_name() {
        let (send, receive) = channel::<()>();
        let (computed, done) = channel();
        let thread = Builder::new().name("cpu time test".to_owned()).spawn(move || {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(20) {
                std::hint::spin_loop();
            }
            computed.send(()).unwrap();
            // Its entry is there as long as it is.
            let _ = receive.recv();
        });
        done.recv().unwrap();
        let time = cpu_time("cpu time test");
        drop(send);
        thread.unwrap().join().unwrap();
        assert!(time.is_some_and(|time| time > Duration::ZERO), "{time:?}");
        assert_eq!(cpu_time("no such thread"), None);
    }
}
