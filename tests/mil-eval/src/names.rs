//! Names: each is given once in a function, in whichever block.

use std::collections::HashSet;

use crate::Res;
use crate::model::{Block, Model};

/// Whether no two values of a function have the same name. The two blocks of a loop may call their inputs alike, as Apple's converter
/// does.
pub fn check(model: &Model) -> Res<()> {
    let mut given = HashSet::new();
    model.arguments.iter().try_for_each(|argument| once(&mut given, &argument.name))?;
    block(&mut given, &model.block)
}

fn once<'m>(given: &mut HashSet<&'m str>, name: &'m str) -> Res<()> {
    if name.is_empty() || !given.insert(name) {
        return Err(format!("the name {name:?} is used twice"));
    }
    Ok(())
}

fn block<'m>(given: &mut HashSet<&'m str>, within: &'m Block) -> Res<()> {
    for operation in &within.operations {
        let mut inputs = HashSet::new();
        for inner in &operation.blocks {
            let mut own = HashSet::new();
            inner.inputs.iter().try_for_each(|input| once(&mut own, &input.name))?;
            inputs.extend(own);
        }
        inputs.into_iter().try_for_each(|name| once(given, name))?;
        operation.blocks.iter().try_for_each(|inner| block(given, inner))?;
        operation.outputs.iter().try_for_each(|output| once(given, &output.name))?;
    }
    Ok(())
}
