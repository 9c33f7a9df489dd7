//! How each operator's golden cases are run.

mod batch_norm;
mod case;
mod conv2d;
mod element_wise;
mod linear;
mod loss;
mod lrn;
mod pool;
mod sgd;
mod tensors;

pub(crate) use case::Case;
use lockstep::ops::Isa;

/// Runs a case on one instruction set and compares all results.
///
/// # Panics
///
/// If a result is off, the operator is unknown, or the case lacks something.
pub(crate) fn check(case: &Case, isa: Isa) {
    match case.parameter::<String>("op").as_str() {
        "conv2d" => conv2d::check(case, isa),
        "linear" => linear::check(case, isa),
        "maxpool" | "avgpool" => pool::check(case, isa),
        "global_avgpool" => pool::check_global(case, isa),
        "relu" | "sigmoid" | "tanh" => element_wise::check_activation(case, isa),
        "add" => element_wise::check_add(case, isa),
        "concat" => element_wise::check_concat(case, isa),
        "lrn" => lrn::check(case, isa),
        "batchnorm" => batch_norm::check(case, isa),
        "softmax_cross_entropy" => loss::check(case, isa),
        "sgd" => sgd::check(case, isa),
        unknown => panic!("{}: unknown operator {unknown}", case.name()),
    }
}
