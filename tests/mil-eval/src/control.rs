//! Operations with blocks inside: a choice of two, and a loop.

use crate::call::Call;
use crate::evaluate::Scope;
use crate::model::Block;
use crate::{Res, Tensor, Ty};

/// One truth value, which has no dimensions.
fn truth(tensor: &Tensor) -> Res<bool> {
    match (tensor.dims.as_slice(), tensor.as_bools()?) {
        ([], &[truth]) => Ok(truth),
        (dims, _) => Err(format!("a condition of {:?} {dims:?}", tensor.ty)),
    }
}

/// Whether two lists of tensors are of the same types and shapes.
fn alike(what: &str, a: &[Tensor], b: &[Tensor]) -> Res<()> {
    let types = |list: &[Tensor]| list.iter().map(|t| (t.ty, t.dims.clone())).collect::<Vec<_>>();
    if types(a) == types(b) { Ok(()) } else { Err(format!("{what}: {:?} and {:?}", types(a), types(b))) }
}

impl Scope<'_> {
    /// `cond`: the first block where the condition holds.
    pub(crate) fn choice(&mut self, call: &Call, then: &Block, otherwise: &Block) -> Res<Vec<Tensor>> {
        let holds = truth(&*call.of("pred", &[Ty::Bool])?)?;
        if !then.inputs.is_empty() || !otherwise.inputs.is_empty() {
            return Err("a branch with inputs".to_string());
        }
        let (taken, other) = if holds { (then, otherwise) } else { (otherwise, then) };
        let results = self.block(taken, &[])?;
        if self.every_block {
            let others = self.block(other, &[])?;
            alike("the branches give", &results, &others)?;
        }
        Ok(results)
    }

    /// `while_loop`: the second block of the state, as long as the first one of it holds.
    pub(crate) fn repeat(&mut self, call: &Call, test: &Block, step: &Block) -> Res<Vec<Tensor>> {
        let mut state: Vec<Tensor> = call.many("loop_vars")?.iter().map(|t| (**t).clone()).collect();
        loop {
            let [goes_on]: [Tensor; 1] =
                self.block(test, &state)?.try_into().map_err(|_| "a condition of several values")?;
            let goes_on = truth(&goes_on)?;
            if !goes_on && !self.every_block {
                return Ok(state);
            }
            let next = self.block(step, &state)?;
            alike("the loop turns", &state, &next)?;
            state = next;
            if self.every_block {
                return Ok(state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Package;
    use crate::model::{Binding, Model, Named, Operation, Type, Value};

    fn named(name: &str, ty: Ty, dims: &[usize]) -> Named {
        Named { name: name.to_string(), of: Type { ty, dims: dims.to_vec() } }
    }

    fn op(op: &str, inputs: &[(&str, &[&str])], output: Named) -> Operation {
        let bound = |names: &[&str]| names.iter().map(|n| Binding::Name(n.to_string())).collect();
        Operation {
            op: op.to_string(),
            inputs: inputs.iter().map(|(key, names)| (key.to_string(), bound(names))).collect(),
            outputs: vec![output],
            blocks: Vec::new(),
            attributes: BTreeMap::new(),
        }
    }

    fn block(inputs: &[Named], operations: Vec<Operation>, outputs: &[&str]) -> Block {
        let outputs = outputs.iter().map(|name| name.to_string()).collect();
        Block { inputs: inputs.to_vec(), outputs, operations }
    }

    /// `while sum(x) < limit { x = flag ? x + x : x · x }` of one float: the program's operations are a constant and the loop.
    fn doubling() -> Package {
        let x = || named("x", Ty::F32, &[1]);
        let two = |name: &str, f: &str| {
            let made = named(&format!("{name}_y"), Ty::F32, &[1]);
            let output = made.name.clone();
            block(&[], vec![op(f, &[("x", &["x"]), ("y", &["x"])], made)], &[&output])
        };
        let mut choice = op("cond", &[("pred", &["flag"])], named("next", Ty::F32, &[1]));
        choice.blocks = vec![two("then", "add"), two("otherwise", "mul")];
        let axes = Tensor::ints(&[1], vec![0]);
        let mut zero = op("const", &[], named("axes", Ty::I32, &[1]));
        zero.attributes.insert("val".to_string(), Value::Immediate(axes));
        let scalar = |name: &str, ty: Ty| named(name, ty, &[]);
        let test = vec![
            op("less", &[("x", &["x"]), ("y", &["limit"])], named("below", Ty::Bool, &[1])),
            op("squeeze", &[("x", &["below"]), ("axes", &["axes"])], scalar("goes_on", Ty::Bool)),
        ];
        let mut repeat = op("while_loop", &[("loop_vars", &["first"])], named("last", Ty::F32, &[1]));
        repeat.blocks = vec![block(&[x()], test, &["goes_on"]), block(&[x()], vec![choice], &["next"])];
        let mut flag = op("const", &[], scalar("flag", Ty::Bool));
        flag.attributes.insert("val".to_string(), Value::Immediate(Tensor::bools(&[], vec![true])));
        let model = Model {
            version: 8,
            inputs: Vec::new(),
            outputs: Vec::new(),
            opset: "CoreML7".to_string(),
            arguments: vec![named("first", Ty::F32, &[1]), named("limit", Ty::F32, &[1])],
            block: block(&[], vec![zero, flag, repeat], &["last"]),
        };
        Package { model, weights: Vec::new() }
    }

    /// What the evaluator says of a program of which something was changed.
    fn verdict(change: impl Fn(&mut Block)) -> Res<()> {
        let mut package = doubling();
        change(&mut package.model.block);
        crate::names::check(&package.model)?;
        package.check()
    }

    #[track_caller]
    fn rejected(expected: &str, change: impl Fn(&mut Block)) {
        let said = verdict(change).expect_err(expected);
        assert!(said.contains(expected), "{said}");
    }

    fn step(block: &mut Block) -> &mut Block {
        &mut block.operations[2].blocks[1]
    }

    fn otherwise(block: &mut Block) -> &mut Block {
        &mut step(block).operations[0].blocks[1]
    }

    fn reads(operation: &mut Operation, key: &str, name: &str) {
        operation.inputs.insert(key.to_string(), vec![Binding::Name(name.to_string())]);
    }

    #[test]
    fn a_loop_runs_while_its_condition_holds() {
        let run = |first: f32| {
            let given =
                [("first", Tensor::floats(&[1], vec![first])), ("limit", Tensor::floats(&[1], vec![10.0]))];
            doubling().run(&given).map(|outputs| outputs[0].clone())
        };
        assert_eq!(run(1.5), Ok(Tensor::floats(&[1], vec![12.0])));
        assert_eq!(run(11.0), Ok(Tensor::floats(&[1], vec![11.0])));
        verdict(|_| ()).expect("it is sound");
    }

    #[test]
    fn names_are_known_in_their_block_and_those_inside_alone() {
        // Of an inner block, used outside of it; of the branch beside it; of the block that is being given values.
        rejected("no value \"next\"", |block| block.outputs = vec!["next".to_string()]);
        rejected("no value \"then_y\"", |block| reads(&mut otherwise(block).operations[0], "y", "then_y"));
        rejected("no value \"below\"", |block| reads(&mut otherwise(block).operations[0], "y", "below"));
        rejected("no value \"x\"", |block| reads(&mut block.operations[2], "loop_vars", "x"));
        rejected("used twice", |block| {
            otherwise(block).operations[0].outputs[0].name = "limit".to_string();
            otherwise(block).outputs = vec!["limit".to_string()];
        });
        rejected("used twice", |block| {
            otherwise(block).operations[0].outputs[0].name = "then_y".to_string();
            otherwise(block).outputs = vec!["then_y".to_string()];
        });
    }

    #[test]
    fn blocks_give_what_is_declared_taken_or_not() {
        rejected("is declared", |block| otherwise(block).operations[0].outputs[0].of.dims = vec![2]);
        rejected("the branches give", |block| otherwise(block).outputs = vec!["axes".to_string()]);
        rejected("the loop turns", |block| step(block).outputs = vec!["axes".to_string()]);
        rejected("the loop turns", |block| step(block).outputs.push("next".to_string()));
        rejected("a condition of", |block| block.operations[2].blocks[0].outputs = vec!["below".to_string()]);
        rejected("a block's input x", |block| step(block).inputs[0].of.ty = Ty::F16);
        rejected("a block of 0 inputs", |block| step(block).inputs.clear());
        rejected("is declared", |block| block.operations[2].outputs[0].of.ty = Ty::I32);
    }

    #[test]
    fn operations_have_the_blocks_that_are_theirs() {
        rejected("1 blocks", |block| drop(block.operations[2].blocks.pop()));
        rejected("it has blocks", |block| otherwise(block).operations[0].blocks.push(Block::default()));
        rejected("no operand", |block| reads(&mut block.operations[2], "more", "limit"));
    }
}
