//! The forward passes of all checks that attack again, for the time that is left.

use crate::Passes;
use crate::check::plans::{Amount, Attack};
use audit_base::Result;

/// Is told the forward passes of all checks, and how many are expected to be left; an error ends the checks.
pub type WatchPasses<'w> = dyn FnMut(Passes, usize) -> Result<()> + Send + 'w;

/// Forward passes of the attacks of all checks.
pub struct PassCount<'w> {
    watch: &'w mut WatchPasses<'w>,
    /// Forward passes before the current attack, and with it.
    before: usize,
    now: usize,
    /// The current attack.
    current: Amount,
    /// Forward passes of the strong searches that have ended or are foreseen, and those that they usually
    /// take.
    strong: [usize; 2],
    /// Attacks to come.
    pub(super) ahead: Vec<(Attack, Amount)>,
}

impl<'w> PassCount<'w> {
    /// No passes yet. `strong`: [what strong searches take](Amount::expected), which counts like one more
    /// that has ended.
    pub fn new(watch: &'w mut WatchPasses<'w>, strong: [usize; 2]) -> PassCount<'w> {
        PassCount { watch, before: 0, now: 0, current: Amount::default(), strong, ahead: Vec::new() }
    }

    pub(super) fn begin(&mut self, attack: &Attack) {
        if self.current.is_open() {
            self.strong[0] += self.now - self.before;
            self.strong[1] += self.current.usual;
        }
        self.before = self.now;
        let found = self.ahead.iter().find(|(other, _)| other == attack);
        self.current = found.map(|(_, amount)| *amount).unwrap_or_default();
        self.ahead.retain(|(other, _)| other != attack);
    }

    /// Adds what the current attack has made, and the upper bound on what it has left. Errors: those of the
    /// watch.
    pub(super) fn record(&mut self, Passes { made, left }: Passes) -> Result<()> {
        self.now = self.before + made;
        let most: usize = self.ahead.iter().map(|(_, amount)| amount.most).sum();
        let after: usize = self.ahead.iter().map(|(_, amount)| amount.expected(self.strong).usual).sum();
        let usual = self.current.expected(self.strong).usual.saturating_sub(made).min(left);
        (self.watch)(Passes { made: self.now, left: left + most }, usual + after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;

    /// By hand: the audit's own strong search took a tenth of what it usually takes, and so will another one.
    /// Random images take what they always do.
    #[test]
    fn strong_searches_are_expected_to_end_as_early_as_before() {
        let mut told = Vec::new();
        {
            let mut watch = |passes: Passes, usual: usize| {
                told.push([passes.made, passes.left, usual]);
                Ok(())
            };
            let mut work = PassCount::new(&mut watch, [0; 2]);
            let own = Attack::Search(plan());
            work.ahead = vec![
                (own.clone(), Amount { usual: 100, most: 1000 }),
                (Attack::Transfer, Amount { usual: 200, most: 2000 }),
                (Attack::Noise, Amount { usual: 50, most: 50 }),
            ];
            work.begin(&own);
            work.record(Passes { made: 10, left: 900 }).unwrap();
            work.begin(&Attack::Transfer);
            work.record(Passes { made: 5, left: 1900 }).unwrap();
        }
        assert_eq!(told, [[10, 900 + 2050, 90 + 250], [15, 1900 + 50, 15 + 50]]);
    }
}
