//! The pool under contention, with panics, and with threads that do not start.

use super::*;
use std::sync::atomic::AtomicUsize;

fn counts(run: &mut Run<'_>, tasks: usize) {
    let seen: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    run.parallel_for(tasks, &|range| {
        for i in range {
            seen[i].fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 1));
}

#[test]
fn every_task_runs_once_for_any_number_of_threads_and_tasks() {
    for threads in [1, 2, 3, 5] {
        let pool = Pool::new(threads).unwrap();
        for wake in [Wake::Yes, Wake::IfFrequent] {
            let mut run = pool.enter(wake);
            assert_eq!(run.threads(), threads);
            for tasks in (0..40).chain([1000]) {
                counts(&mut run, tasks);
            }
        }
    }
}

#[test]
fn parked_helpers_wake_and_a_long_series_of_runs_is_complete() {
    let pool = Pool::new(2).unwrap();
    for round in 0..200 {
        if round % 50 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut run = pool.enter(if round % 3 == 0 { Wake::IfFrequent } else { Wake::Yes });
        for _ in 0..20 {
            counts(&mut run, 7);
        }
    }
}

#[test]
fn helpers_do_take_part() {
    let pool = Pool::new(2).unwrap();
    let mut run = pool.enter(Wake::Yes);
    let caller = std::thread::current().id();
    let helped = AtomicBool::new(false);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !helped.load(Ordering::Relaxed) {
        assert!(Instant::now() < deadline, "the helper never took its part");
        run.parallel_for(2, &|_| {
            if std::thread::current().id() == caller {
                std::thread::sleep(Duration::from_millis(1));
            } else {
                helped.store(true, Ordering::Relaxed);
            }
        });
    }
}

#[test]
fn short_runs_that_follow_each_other_closely_wake_helpers() {
    let pool = Pool::new(2).unwrap();
    // Parked, but for a machine that is busier than any.
    std::thread::sleep(50 * LINGER);
    let caller = std::thread::current().id();
    let helped = AtomicBool::new(false);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !helped.load(Ordering::Relaxed) {
        assert!(Instant::now() < deadline, "the helper never took its part");
        let start = Instant::now();
        pool.enter(Wake::IfFrequent).parallel_for(2, &|_| {
            if std::thread::current().id() == caller {
                while start.elapsed() < LINGER {}
            } else {
                helped.store(true, Ordering::Relaxed);
            }
        });
    }
}

#[test]
fn a_busy_pool_means_run_alone() {
    let pool = Pool::new(2).unwrap();
    let mut outer = pool.enter(Wake::Yes);
    outer.parallel_for(2, &|_| {
        let mut inner = pool.enter(Wake::Yes);
        assert_eq!(inner.threads(), 1);
        counts(&mut inner, 9);
    });
    drop(outer);
    assert_eq!(pool.enter(Wake::IfFrequent).threads(), 2);
}

#[test]
fn runs_at_the_same_time_divide_the_threads() {
    let pool = Pool::new(6).unwrap();
    let mut first = pool.enter(Wake::Yes);
    assert_eq!(first.threads(), 6);
    let mut second = pool.enter(Wake::Yes);
    assert_eq!(second.threads(), 1, "all helpers are the first one's, until it is between two steps");
    first.rebalance();
    second.rebalance();
    assert_eq!((first.threads(), second.threads()), (3, 3));
    counts(&mut first, 40);
    counts(&mut second, 40);
    let mut third = pool.enter(Wake::IfFrequent);
    [&mut first, &mut second, &mut third].into_iter().for_each(Run::rebalance);
    third.rebalance();
    assert_eq!([&first, &second, &third].map(|run| run.threads()), [2, 2, 2]);
    counts(&mut third, 9);
    drop((first, third));
    second.rebalance();
    assert_eq!(second.threads(), 6, "it has what the others gave back");
    drop(second);
    assert_eq!(pool.enter(Wake::IfFrequent).threads(), 6);
}

#[test]
fn a_run_lends_its_helpers_to_runs_within_it() {
    let (pool, other) = (Pool::new(3).unwrap(), Pool::new(2).unwrap());
    let mut run = pool.enter(Wake::Yes);
    let within = run.lend(|| {
        let mut inner = pool.enter(Wake::Yes);
        counts(&mut inner, 50);
        assert_eq!(pool.enter(Wake::Yes).threads(), 1, "what was lent is taken");
        let deepest = inner.lend(|| pool.enter(Wake::IfFrequent).threads());
        (inner.threads(), deepest)
    });
    assert_eq!((within, run.threads()), ((3, 3), 3));
    assert_eq!(run.lend(|| other.enter(Wake::Yes).threads()), 2, "another pool's runs have its own");
    counts(&mut run, 50);
    assert_eq!(pool.enter(Wake::Yes).threads(), 1, "nothing is lent any more");
    drop(run);
    assert_eq!(pool.enter(Wake::Yes).threads(), 3);
}

#[test]
fn what_was_lent_to_a_run_that_panics_comes_back() {
    let pool = Pool::new(2).unwrap();
    let mut run = pool.enter(Wake::Yes);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        run.lend(|| {
            let _inner = pool.enter(Wake::Yes);
            panic!("a body");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(run.threads(), 2);
    counts(&mut run, 50);
}

#[test]
fn a_run_that_outlives_its_loan_gives_helpers_to_the_pool() {
    let pool = Pool::new(2).unwrap();
    let mut run = pool.enter(Wake::Yes);
    let inner = run.lend(|| pool.enter(Wake::Yes));
    assert_eq!((run.threads(), inner.threads()), (1, 2));
    drop((inner, run));
    assert_eq!(pool.enter(Wake::Yes).threads(), 2);
}

#[test]
fn more_runs_than_threads_are_done_by_their_callers() {
    let pool = Pool::new(2).unwrap();
    let mut runs: Vec<Run<'_>> = (0..5).map(|_| pool.enter(Wake::Yes)).collect();
    runs.iter_mut().for_each(Run::rebalance);
    assert!(runs.iter().all(|run| run.threads() == 1));
    runs.iter_mut().for_each(|run| counts(run, 11));
    runs.truncate(1);
    runs[0].rebalance();
    assert_eq!(runs[0].threads(), 2);
}

#[test]
fn runs_that_come_and_go_on_many_threads_lose_no_task() {
    let pool = Pool::new(4).unwrap();
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..200 {
                    let mut run = pool.enter(if round % 2 == 0 { Wake::Yes } else { Wake::IfFrequent });
                    for tasks in 0..caller + 9 {
                        run.rebalance();
                        counts(&mut run, tasks);
                    }
                }
            });
        }
    });
    assert_eq!(pool.enter(Wake::IfFrequent).threads(), 4);
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_survives() {
    let pool = Pool::new(2).unwrap();
    for bad in [0, 9] {
        let mut run = pool.enter(Wake::Yes);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            run.parallel_for(10, &|range| assert!(!range.contains(&bad), "task {bad} failed"));
        }));
        let text = *caught.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(text, format!("task {bad} failed"));
        counts(&mut run, 10);
    }
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a payload that panics when it is dropped");
    }
}

#[test]
fn whatever_panics_carry_the_caller_waits_for_all_parts() {
    let pool = Pool::new(3).unwrap();
    for round in 0..100 {
        let ended = AtomicUsize::new(0);
        let mut run = pool.enter(Wake::Yes);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            run.parallel_for_indexed(3, &|part, _| {
                if part == 2 && round % 2 == 0 {
                    std::thread::sleep(Duration::from_micros(200));
                }
                ended.fetch_add(1, Ordering::SeqCst);
                if part < 2 {
                    std::panic::panic_any(Bomb);
                }
            });
        }));
        assert_eq!(ended.load(Ordering::SeqCst), 3, "round {round}");
        std::mem::forget(caught);
        counts(&mut run, 10);
    }
}

#[test]
fn a_system_that_starts_no_more_threads_gives_fewer() {
    for (room, expected) in [(0, 1), (1, 1), (2, 2), (5, 3), (7, 8)] {
        // At most `room` helpers; those that end make room again.
        let few = |index, shared: &Arc<Shared>| {
            if index < room { start(index, shared) } else { Err(io::ErrorKind::WouldBlock.into()) }
        };
        let pool = Pool::started(8, &few);
        assert_eq!(pool.threads(), expected, "with room for {room} helpers");
        let mut run = pool.enter(Wake::Yes);
        for tasks in 0..20 {
            counts(&mut run, tasks);
        }
    }
}

#[test]
fn bad_settings_are_errors() {
    for bad in ["0", "-1", "two", "4097", "1.5"] {
        assert_eq!(threads_from_setting(bad), Err(PoolError::BadThreads(bad.into())));
    }
    assert_eq!(threads_from_setting(" 3 "), Ok(3));
    assert!(Pool::new(0).is_err());
}
