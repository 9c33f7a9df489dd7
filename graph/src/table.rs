//! A network as a table for people.

use crate::layer::Layer;
use crate::network::Network;

impl Network {
    /// One row a layer: name, kind, output of one sample, trainable values, millions of operations; then the sums.
    #[must_use]
    pub fn to_table(&self) -> String {
        let header = ["layer", "kind", "output", "params", "MFLOP"].map(str::to_owned);
        let mut rows = vec![header];
        for layer in self.layers() {
            rows.push([
                layer.name.clone(),
                self.kind_text(layer),
                layer.shape.to_string(),
                layer.parameter_count().to_string(),
                mega(self.forward_flops_per_sample(layer.id) as f64),
            ]);
        }
        let flops = self.layers().iter().map(|l| self.forward_flops_per_sample(l.id) as f64).sum();
        let parameters = self.parameter_count().to_string();
        rows.push(["total".into(), String::new(), String::new(), parameters, mega(flops)]);
        let widths: Vec<usize> = (0..rows[0].len())
            .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
            .collect();
        let line = |[name, kind, output, params, mflop]: &[String; 5]| {
            let [w0, w1, w2, w3, w4] = [0, 1, 2, 3, 4].map(|column| widths[column]);
            format!("{name:<w0$}  {kind:<w1$}  {output:>w2$}  {params:>w3$}  {mflop:>w4$}\n")
        };
        rows.iter().map(line).collect()
    }

    /// Kind and settings, and whose parameters the layer computes with: `linear 10 tied to fc1`.
    pub(crate) fn kind_text(&self, layer: &Layer) -> String {
        let owner = layer.tied_to.map(|owner| format!(" tied to {}", self.layer(owner).name));
        layer.kind.to_string() + &owner.unwrap_or_default()
    }
}

fn mega(flops: f64) -> String {
    format!("{:.3}", flops / 1e6)
}
