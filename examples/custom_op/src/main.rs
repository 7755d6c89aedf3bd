//! Runs the op, and says by what.

use rlx_runtime::{Device, Session, dispatch_report_for_device};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    custom_op::register()?;
    let graph = custom_op::graph(2, 8);
    print!("{graph}");
    println!("{}", dispatch_report_for_device(&graph, Device::Cpu)?);
    let x: Vec<f32> = (0..16).map(|i| (i as f32 * 0.7).sin()).collect();
    let out = Session::try_new(Device::Cpu)?.try_compile(graph)?.try_run(&[("x", &x)])?;
    for (x, y) in x.chunks(8).zip(out[0].chunks(8)) {
        println!("{x:.2?}\n{y:.2?}");
    }
    Ok(())
}
