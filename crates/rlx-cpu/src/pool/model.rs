//! The pool under `loom`: every interleaving of a caller and its helper, within a bound on preemptions.

use std::sync::atomic::{AtomicUsize, Ordering};

use rlx_ir::panics;

use super::{Pool, Run, Wake};

/// Every order with at most this many switches away from a thread that could go on.
const PREEMPTIONS: usize = 2;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// Each of two tasks adds to its own cell, which `loom` watches for races.
fn job(run: &mut Run<'_>, cells: &[loom::cell::UnsafeCell<usize>; 2]) {
    failing_job(run, cells, usize::MAX);
}

/// The same; task `bad` then panics.
fn failing_job(run: &mut Run<'_>, cells: &[loom::cell::UnsafeCell<usize>; 2], bad: usize) {
    struct Shared<'a>(&'a [loom::cell::UnsafeCell<usize>; 2]);
    // SAFETY: tasks touch different cells, which the model checks.
    unsafe impl Sync for Shared<'_> {}
    let shared = Shared(cells);
    run.parallel_for(2, &|range| {
        let Shared(cells) = &shared;
        for i in range {
            // SAFETY: as above.
            cells[i].with_mut(|p| unsafe { *p += 1 });
            if i == bad {
                // Without the hook, which would print the text in every order that is tried.
                std::panic::resume_unwind(Box::new(format!("task {bad}")));
            }
        }
    });
}

fn sum(cells: &[loom::cell::UnsafeCell<usize>; 2]) -> [usize; 2] {
    // SAFETY: the jobs are over.
    [0, 1].map(|i| cells[i].with(|p| unsafe { *p }))
}

#[test]
fn jobs_one_after_the_other_run_each_task_once_and_their_writes_are_seen() {
    check(|| {
        let pool = Pool::new(2).unwrap();
        let cells = [loom::cell::UnsafeCell::new(0), loom::cell::UnsafeCell::new(0)];
        let mut run = pool.enter(Wake::Yes);
        job(&mut run, &cells);
        job(&mut run, &cells);
        drop(run);
        assert_eq!(sum(&cells), [2, 2]);
    });
}

#[test]
fn a_helper_that_went_to_sleep_is_woken_or_not_needed() {
    check(|| {
        let pool = Pool::new(2).unwrap();
        let cells = [loom::cell::UnsafeCell::new(0), loom::cell::UnsafeCell::new(0)];
        for wake in [Wake::IfFrequent, Wake::Yes] {
            job(&mut pool.enter(wake), &cells);
        }
        assert_eq!(sum(&cells), [2, 2]);
    });
}

#[test]
fn two_callers_at_once_both_get_their_results() {
    check(|| {
        let pool = loom::sync::Arc::new(Pool::new(2).unwrap());
        let other = loom::sync::Arc::clone(&pool);
        let caller = loom::thread::spawn(move || {
            let cells = [loom::cell::UnsafeCell::new(0), loom::cell::UnsafeCell::new(0)];
            job(&mut other.enter(Wake::IfFrequent), &cells);
            assert_eq!(sum(&cells), [1, 1]);
        });
        let cells = [loom::cell::UnsafeCell::new(0), loom::cell::UnsafeCell::new(0)];
        job(&mut pool.enter(Wake::IfFrequent), &cells);
        assert_eq!(sum(&cells), [1, 1]);
        caller.join().unwrap();
    });
}

#[test]
fn two_callers_that_divide_the_pool_between_jobs_both_get_their_results() {
    check(|| {
        let pool = loom::sync::Arc::new(Pool::new(2).unwrap());
        let other = loom::sync::Arc::clone(&pool);
        let twice = |pool: &Pool| {
            let cells = [loom::cell::UnsafeCell::new(0), loom::cell::UnsafeCell::new(0)];
            let mut run = pool.enter(Wake::IfFrequent);
            job(&mut run, &cells);
            run.rebalance();
            job(&mut run, &cells);
            drop(run);
            assert_eq!(sum(&cells), [2, 2]);
        };
        let caller = loom::thread::spawn(move || twice(&other));
        twice(&pool);
        caller.join().unwrap();
    });
}

#[test]
fn a_task_that_panics_ends_its_job_after_the_other_and_the_next_job_is_whole() {
    check(|| {
        let pool = Pool::new(2).unwrap();
        let cells = [loom::cell::UnsafeCell::new(0), loom::cell::UnsafeCell::new(0)];
        let mut run = pool.enter(Wake::IfFrequent);
        for bad in 0..2 {
            let caught = panics::catch(|| failing_job(&mut run, &cells, bad));
            assert_eq!(caught, Err(format!("task {bad}")));
        }
        job(&mut run, &cells);
        drop(run);
        assert_eq!(sum(&cells), [3, 3]);
    });
}

#[test]
fn a_pool_without_jobs_ends() {
    // Counts how many orders were tried: a model that tries one only would show nothing.
    static TRIED: AtomicUsize = AtomicUsize::new(0);
    check(|| {
        TRIED.fetch_add(1, Ordering::Relaxed);
        drop(Pool::new(2).unwrap());
    });
    assert!(TRIED.load(Ordering::Relaxed) > 1);
}
