//! The process that compiles and runs programs.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::world::Source;

/// A tensor as it goes to the process: the header's number of its type, dimensions, row-major bytes.
pub(crate) type Tensor = (i32, Vec<i64>, Vec<u8>);

pub(crate) struct Worker {
    _process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts the process.
    pub(crate) fn start() -> Result<Worker, String> {
        let python =
            std::env::var_os("RLX_TEST_PJRT_PYTHON").ok_or("RLX_TEST_PJRT_PYTHON names no interpreter")?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/pjrt_worker.py");
        let mut command = Command::new(python);
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().map_err(|e| e.to_string())?;
        let to = process.stdin.take().ok_or("no pipe")?;
        let from = BufReader::new(process.stdout.take().ok_or("no pipe")?);
        Ok(Worker { _process: process, to, from })
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let read = self.from.read_line(&mut line).map_err(|e| e.to_string())?;
        if read == 0 {
            return Err("the worker process ended".into());
        }
        let line = line.trim_end();
        match line.strip_prefix("no ") {
            Some(why) => Err(why.to_owned()),
            None => Ok(line.to_owned()),
        }
    }

    /// Compiles a program; gives its number.
    pub(crate) fn compile(&mut self, source: &Source) -> Result<usize, String> {
        let sent = writeln!(self.to, "compile {} {}", source.options.len(), source.text.len())
            .and_then(|()| self.to.write_all(&source.options))
            .and_then(|()| self.to.write_all(&source.text))
            .and_then(|()| self.to.flush());
        sent.map_err(|e| e.to_string())?;
        self.line()?.parse().map_err(|_| "no number came back".to_owned())
    }

    /// Runs a program.
    pub(crate) fn run(&mut self, program: usize, inputs: &[&Tensor]) -> Result<Vec<Tensor>, String> {
        let mut send = || -> std::io::Result<()> {
            writeln!(self.to, "run {program} {}", inputs.len())?;
            for (ty, dims, bytes) in inputs {
                let dims: Vec<String> = dims.iter().map(i64::to_string).collect();
                writeln!(self.to, "{ty} {} {}", bytes.len(), dims.join(" "))?;
                self.to.write_all(bytes)?;
            }
            self.to.flush()
        };
        send().map_err(|e| e.to_string())?;
        let count: usize = self.line()?.parse().map_err(|_| "no count came back")?;
        (0..count).map(|_| self.tensor()).collect()
    }

    fn tensor(&mut self) -> Result<Tensor, String> {
        let line = self.line()?;
        let mut numbers =
            line.split(' ').filter(|word| !word.is_empty()).map(|word| word.parse::<i64>().unwrap_or(0));
        let (ty, size) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let dims = numbers.collect();
        let mut bytes = vec![0; size as usize];
        self.from.read_exact(&mut bytes).map_err(|e| e.to_string())?;
        Ok((ty as i32, dims, bytes))
    }
}
