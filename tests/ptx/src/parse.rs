//! Text to instructions.

use std::collections::HashMap;

use crate::Result;
use crate::groups::GroupOp;
use crate::values::{VALUES, Value};

/// A number of a register, among all of a thread's.
pub type Reg = usize;

/// What an instruction is given.
#[derive(Debug, Clone, Copy)]
pub enum Operand {
    Reg(Reg),
    Bits(u64),
    Special(Special),
}

/// Registers that say where a thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    Thread,
    Threads,
    Lane,
    Group(usize),
    Groups(usize),
}

/// A register or a constant, and a constant.
#[derive(Debug, Clone, Copy)]
pub struct Address {
    pub base: Operand,
    pub offset: i64,
}

/// The type of the operands of a matrix instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    F16,
    BF16,
}

/// What an instruction does.
#[derive(Debug, Clone)]
pub enum Op {
    /// A value of values.
    Value {
        f: Value,
        d: Reg,
        a: [Operand; 4],
    },
    /// What another register has: of a sum that is under way, another name.
    Move {
        d: Reg,
        a: Reg,
    },
    /// Two registers of 16 bits as one of 32.
    Pack {
        d: Reg,
        a: [Operand; 2],
    },
    /// And back.
    Unpack {
        d: [Reg; 2],
        a: Operand,
    },
    /// A parameter of the kernel, by its number: its value, or the address of one that is given by value.
    Parameter {
        d: Reg,
        number: usize,
    },
    /// Elements of `bytes` bytes.
    Load {
        shared: bool,
        bytes: usize,
        d: Vec<Reg>,
        at: Address,
    },
    Store {
        shared: bool,
        bytes: usize,
        a: Vec<Operand>,
        at: Address,
    },
    /// To the instruction of this number.
    Branch(usize),
    Return,
    Barrier,
    /// `cp.async`: so many bytes, the first `read` of them from memory, the others 0.
    Copy {
        bytes: usize,
        to: Address,
        from: Address,
        read: Option<Operand>,
    },
    Commit,
    Wait(usize),
    LoadMatrices {
        trans: bool,
        d: Vec<Reg>,
        at: Address,
    },
    /// What another lane of the warp has: that of this number, or of this one exclusive-or the lane's own.
    Shuffle {
        xor: bool,
        d: Reg,
        a: Operand,
        lane: Operand,
        /// The last lane, and which lanes take part: here, all.
        among: [Operand; 2],
    },
    Mma {
        half: Half,
        k: usize,
        d: Vec<Reg>,
        a: Vec<Operand>,
        b: Vec<Operand>,
        c: Vec<Operand>,
    },
    /// Of sm_90a.
    Group(GroupOp),
}

#[derive(Debug, Clone)]
pub struct Instr {
    pub line: usize,
    /// Runs only where the register is 1, or, with `true`, 0.
    pub guard: Option<(Reg, bool)>,
    pub op: Op,
}

/// A kernel.
#[derive(Debug, Clone)]
pub struct Module {
    pub(crate) parameters: Vec<String>,
    pub(crate) shared_bytes: usize,
    pub(crate) registers: usize,
    pub(crate) code: Vec<Instr>,
}

/// What names stand for.
#[derive(Default)]
struct Names {
    parameters: Vec<String>,
    /// Those that are given by value, as bytes.
    by_value: Vec<String>,
    /// The first register of a family such as `%rd`, and how many there are.
    families: HashMap<String, (usize, usize)>,
    registers: usize,
    /// Offsets in workgroup memory.
    shared: HashMap<String, usize>,
    shared_bytes: usize,
    /// What a launch gives the size of, behind the rest, and its alignment.
    dynamic: Vec<(String, usize)>,
    labels: HashMap<String, usize>,
}

/// A statement and its line.
struct Statement<'t> {
    line: usize,
    text: &'t str,
}

impl Module {
    /// Reads a text with one kernel.
    ///
    /// # Errors
    /// What is not understood, and its line.
    pub fn parse(text: &str) -> Result<Module> {
        let text = without_comments(text);
        let entry = text.find(".entry").ok_or("a text without a kernel")?;
        let open = entry + text[entry..].find('(').ok_or("a kernel without parameters")?;
        let close = open + text[open..].find(')').ok_or("parameters that do not end")?;
        let begin = close + text[close..].find('{').ok_or("a kernel without a body")? + 1;
        let end = text.rfind('}').filter(|&end| end > begin).ok_or("a body that does not end")?;
        let last_word = |p: &str| p.split_whitespace().last().unwrap_or_default().to_owned();
        // What is written to `_` is thrown away.
        let mut names = Names { registers: 1, ..Names::default() };
        names.families.insert("_".to_owned(), (0, 1));
        for parameter in text[open + 1..close].split(',').map(last_word) {
            let name = parameter.split('[').next().unwrap_or_default().to_owned();
            names.by_value.extend((name != parameter).then(|| name.clone()));
            names.parameters.push(name);
        }
        let mut code = Vec::new();
        for s in statements(&text[..entry], 1).filter(|s| s.text.contains(".shared")) {
            names.declare(&s)?;
        }
        let first_line = 1 + text[..begin].matches('\n').count();
        for mut s in statements(&text[begin..end], first_line) {
            s.text = without_scopes(s.text);
            while let Some((label, rest)) = s.text.split_once(':').filter(|(l, _)| is_label(l)) {
                names.labels.insert(label.to_owned(), code.len());
                s.text = without_scopes(rest);
            }
            match s.text {
                "" => {}
                text if text.starts_with('.') => names.declare(&s)?,
                _ => code.push(s),
            }
        }
        for (name, align) in std::mem::take(&mut names.dynamic) {
            names.shared_bytes = names.shared_bytes.next_multiple_of(align.max(1));
            names.shared.insert(name, names.shared_bytes);
        }
        let code = code.iter().map(|s| names.instruction(s).map_err(|e| format!("line {}: {e}", s.line)));
        let code = code.collect::<Result<Vec<_>>>()?;
        Ok(Module {
            code,
            parameters: names.parameters,
            shared_bytes: names.shared_bytes,
            registers: names.registers,
        })
    }
}

/// Without the braces of scopes: inline assembly has them, and declares its names again in each.
fn without_scopes(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_whitespace() || "{}".contains(c))
}

fn is_label(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_$".contains(c))
}

/// The text with its lines, but no comments.
fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// What ends with a semicolon.
fn statements(text: &str, first_line: usize) -> impl Iterator<Item = Statement<'_>> {
    let mut line = first_line;
    text.split(';').map(move |part| {
        let begin = part.len() - part.trim_start().len();
        let at = line + part[..begin].matches('\n').count();
        line += part.matches('\n').count();
        Statement { line: at, text: part.trim() }
    })
}

/// Operands, apart at commas that are not in brackets.
fn operands(text: &str) -> Vec<&str> {
    let (mut all, mut depth, mut from) = (Vec::new(), 0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                all.push(text[from..i].trim());
                from = i + 1;
            }
            _ => {}
        }
    }
    all.push(text[from..].trim());
    all.retain(|s| !s.is_empty());
    all
}

impl Names {
    /// `.reg`, `.shared`; `.pragma` says nothing about values.
    fn declare(&mut self, s: &Statement) -> Result {
        let wrong = || format!("line {}: {:?} is not understood", s.line, s.text);
        let words: Vec<&str> = s.text.split_whitespace().collect();
        match words[..] {
            [".reg", _, name] => {
                let (family, count) = match name.split_once('<') {
                    Some((family, n)) => (family, n.trim_end_matches('>').parse().map_err(|_| wrong())?),
                    None => (name, 1),
                };
                self.families.insert(family.to_owned(), (self.registers, count));
                self.registers += count;
            }
            [.., ".shared", ".align", align, ".b8", name] => {
                let align: usize = align.parse().map_err(|_| wrong())?;
                let (name, n) = name.split_once('[').ok_or_else(wrong)?;
                if words.contains(&".extern") && n == "]" {
                    self.dynamic.push((name.to_owned(), align));
                    return Ok(());
                }
                let bytes: usize = n.trim_end_matches(']').parse().map_err(|_| wrong())?;
                let at = self.shared_bytes.next_multiple_of(align.max(1));
                self.shared.insert(name.to_owned(), at);
                self.shared_bytes = at + bytes;
            }
            [".pragma", ..] => {}
            _ => return Err(wrong()),
        }
        Ok(())
    }

    fn reg(&self, text: &str) -> Result<Reg> {
        let digits = text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (family, number) = text.split_at(text.len() - digits);
        let known = self.families.get(family).and_then(|&(first, count)| {
            let n: usize = number.parse().ok()?;
            (n < count).then_some(first + n)
        });
        let single = || self.families.get(text).map(|&(first, _)| first);
        known.or_else(single).ok_or_else(|| format!("the register {text:?} is not declared"))
    }

    fn regs(&self, text: &str) -> Result<Vec<Reg>> {
        self.parts(text).map(|part| self.reg(part)).collect()
    }

    /// One operand, or those in braces.
    fn parts<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        text.trim_start_matches('{').trim_end_matches('}').split(',').map(str::trim)
    }

    fn operand(&self, text: &str) -> Result<Operand> {
        let special = match text {
            "%tid.x" => Some(Special::Thread),
            "%ntid.x" => Some(Special::Threads),
            "%laneid" => Some(Special::Lane),
            "%ctaid.x" => Some(Special::Group(0)),
            "%ctaid.y" => Some(Special::Group(1)),
            "%ctaid.z" => Some(Special::Group(2)),
            "%nctaid.x" => Some(Special::Groups(0)),
            "%nctaid.y" => Some(Special::Groups(1)),
            "%nctaid.z" => Some(Special::Groups(2)),
            _ => None,
        };
        if let Some(special) = special {
            return Ok(Operand::Special(special));
        }
        // Inline assembly may name registers otherwise.
        if text.starts_with('%') || self.families.contains_key(text) {
            return Ok(Operand::Reg(self.reg(text)?));
        }
        if let Some(&at) = self.shared.get(text) {
            return Ok(Operand::Bits(at as u64));
        }
        let bits = match text.strip_prefix("0f").or_else(|| text.strip_prefix("0x")) {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse::<i64>().ok().map(|n| n as u64),
        };
        bits.map(Operand::Bits).ok_or_else(|| format!("the operand {text:?} is not understood"))
    }

    fn all(&self, text: &str) -> Result<Vec<Operand>> {
        self.parts(text).map(|part| self.operand(part)).collect()
    }

    fn address(&self, text: &str) -> Result<Address> {
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        let inner = inner.ok_or_else(|| format!("the address {text:?} is not understood"))?;
        let (base, offset) = inner.split_once('+').unwrap_or((inner, "0"));
        let offset = offset.trim().parse().map_err(|_| format!("the offset of {text:?}"))?;
        Ok(Address { base: self.operand(base.trim())?, offset })
    }

    fn instruction(&self, s: &Statement) -> Result<Instr> {
        let (mut text, mut guard) = (s.text, None);
        if let Some(rest) = text.strip_prefix('@') {
            let (p, rest) = rest.split_once(char::is_whitespace).ok_or("a predicate alone")?;
            guard = Some((self.reg(p.trim_start_matches('!'))?, p.starts_with('!')));
            text = rest.trim_start();
        }
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let op = self.op(name, &operands(rest))?;
        Ok(Instr { line: s.line, guard, op })
    }

    fn op(&self, name: &str, o: &[&str]) -> Result<Op> {
        let known = |n: usize| match o.len() == n {
            true => Ok(()),
            false => Err(format!("{name} with {} operands", o.len())),
        };
        let number = |text: &str| text.parse::<usize>().map_err(|_| format!("{name} of {text:?}"));
        if name == "mov.b32" && o.len() == 2 {
            if let Ok([low, high]) = <[Operand; 2]>::try_from(self.all(o[1])?) {
                return Ok(Op::Pack { d: self.reg(o[0])?, a: [low, high] });
            }
            if let Ok(d) = <[Reg; 2]>::try_from(self.regs(o[0])?) {
                return Ok(Op::Unpack { d, a: self.operand(o[1])? });
            }
        }
        if let ("mov.b32" | "mov.f32", [d, a]) = (name, o)
            && let Ok(a) = self.reg(a)
        {
            return Ok(Op::Move { d: self.reg(d)?, a });
        }
        let by_value = |text: &str| self.by_value.iter().any(|p| p == text);
        if name == "mov.b64" && o.len() == 2 && by_value(o[1]) {
            let number = self.parameters.iter().position(|p| p == o[1]).unwrap_or_default();
            return Ok(Op::Parameter { d: self.reg(o[0])?, number });
        }
        if let Some(&(_, n, f)) = VALUES.iter().find(|v| v.0 == name) {
            known(n + 1)?;
            let mut a = [Operand::Bits(0); 4];
            for (a, text) in a.iter_mut().zip(&o[1..]) {
                *a = self.operand(text)?;
            }
            return Ok(Op::Value { f, d: self.reg(o[0])?, a });
        }
        let parts: Vec<&str> = name.split('.').collect();
        let readers = (|t: &str| self.operand(t), |t: &str| self.address(t), |t: &str| self.regs(t));
        if let Some(op) = GroupOp::parse(&parts, o, &readers.0, &readers.1, &readers.2) {
            return op.map(Op::Group);
        }
        match parts[..] {
            ["ld", "param", _] => {
                known(2)?;
                let name = o[1].trim_matches(['[', ']']);
                let number = self.parameters.iter().position(|p| p == name && !by_value(p));
                let number = number.ok_or_else(|| format!("the parameter {name:?} is not declared"))?;
                Ok(Op::Parameter { d: self.reg(o[0])?, number })
            }
            ["ld", space, .., ty] => {
                known(2)?;
                let (d, at) = (self.regs(o[0])?, self.address(o[1])?);
                Ok(Op::Load { shared: is_shared(space)?, bytes: bytes(ty)?, d, at })
            }
            ["st", space, .., ty] => {
                known(2)?;
                let (at, a) = (self.address(o[0])?, self.all(o[1])?);
                Ok(Op::Store { shared: is_shared(space)?, bytes: bytes(ty)?, a, at })
            }
            ["bra"] | ["bra", "uni"] => {
                known(1)?;
                let to = self.labels.get(o[0]).ok_or_else(|| format!("the label {:?} is nowhere", o[0]))?;
                Ok(Op::Branch(*to))
            }
            ["ret"] => Ok(Op::Return),
            ["bar", "sync"] | ["barrier", "sync"] => match o {
                ["0"] => Ok(Op::Barrier),
                _ => Err("a barrier of part of a workgroup".to_owned()),
            },
            ["cp", "async", "cg" | "ca", "shared", "global"] => {
                let read = o.get(3).map(|text| self.operand(text)).transpose()?;
                let [to, from, bytes, ..] = o else { return Err(format!("{name} of {o:?}")) };
                let (to, from) = (self.address(to)?, self.address(from)?);
                Ok(Op::Copy { bytes: number(bytes)?, to, from, read })
            }
            ["cp", "async", "commit_group"] => Ok(Op::Commit),
            ["cp", "async", "wait_group"] => {
                known(1)?;
                Ok(Op::Wait(number(o[0])?))
            }
            ["ldmatrix", "sync", "aligned", "m8n8", count, .., "shared", "b16"] => {
                known(2)?;
                let d = self.regs(o[0])?;
                if count.strip_prefix('x') != Some(d.len().to_string().as_str()) {
                    return Err(format!("{name} of {} registers", d.len()));
                }
                Ok(Op::LoadMatrices { trans: parts.contains(&"trans"), d, at: self.address(o[1])? })
            }
            ["shfl", "sync", how @ ("idx" | "bfly"), "b32"] => {
                known(5)?;
                // Whether the other lane is there is said to a register, too; of the whole warp, it always is.
                let d = self.reg(o[0].split('|').next().unwrap_or_default())?;
                let (a, lane) = (self.operand(o[1])?, self.operand(o[2])?);
                let among = [self.operand(o[3])?, self.operand(o[4])?];
                Ok(Op::Shuffle { xor: how == "bfly", d, a, lane, among })
            }
            ["mma", "sync", "aligned", shape, "row", "col", "f32", ty, same, "f32"] if ty == same => {
                known(4)?;
                self.mma(shape, ty, o)
            }
            _ => Err(format!("the instruction {name:?} is not known here")),
        }
    }

    fn mma(&self, shape: &str, ty: &str, o: &[&str]) -> Result<Op> {
        let (k, half) = match (shape, ty) {
            ("m16n8k16", "f16") => (16, Half::F16),
            ("m16n8k16", "bf16") => (16, Half::BF16),
            ("m16n8k8", "f16") => (8, Half::F16),
            _ => return Err(format!("mma of {shape} and {ty} is not known here")),
        };
        let (d, a, b, c) = (self.regs(o[0])?, self.all(o[1])?, self.all(o[2])?, self.all(o[3])?);
        if [d.len(), a.len(), b.len(), c.len()] != [4, k / 4, k / 8, 4] {
            return Err("mma with other numbers of registers".to_owned());
        }
        Ok(Op::Mma { half, k, d, a, b, c })
    }
}

fn is_shared(space: &str) -> Result<bool> {
    match space {
        "shared" => Ok(true),
        "global" => Ok(false),
        _ => Err(format!("the address space {space:?}")),
    }
}

fn bytes(ty: &str) -> Result<usize> {
    match ty {
        "u8" | "b8" => Ok(1),
        "u16" | "b16" => Ok(2),
        "u32" | "s32" | "b32" | "f32" => Ok(4),
        "u64" | "s64" | "b64" | "f64" => Ok(8),
        _ => Err(format!("the type {ty:?}")),
    }
}
