//! What the checks that attack take, and the strong search beside them.

use crate::check::plans::Amount;
use crate::pipeline::cost::{PATIENCE, Speed, WAIT, at_most, range};
use crate::progress::{Announcement, span};
use crate::record::number_of_queries;
use crate::threat::Plan;
use crate::threat::objective::r1::R1;
use serde_json::json;

/// The strong search for R@1 on `strong` queries, and checks that take `amount` on `queries` queries.
pub fn announcement(
    speed: Speed,
    plan: &Plan,
    strong: usize,
    queries: usize,
    amount: Amount,
) -> Announcement {
    let usual_s = (strong * plan.work(&R1)) as f64 * speed.step_s;
    let most_s = match strong {
        0 => 0.0,
        _ => speed.of_passes(plan.most_passes(&R1, strong, speed.room)).max(usual_s),
    };
    let strong_s = [usual_s, most_s];
    let checks_s = [amount.usual, amount.most].map(|passes| speed.of_passes(passes));
    let all = [0, 1].map(|i| strong_s[i] + checks_s[i]);
    let ([checks, checks_most], [usual, most]) = (checks_s, all);
    let text = || {
        let search = match strong {
            0 => String::new(),
            n => format!(
                "strong search on {} at most {}, less if it succeeds early · ",
                number_of_queries(n),
                span(most_s)
            ),
        };
        let few = queries / 4;
        let shorter = match few {
            2.. if usual > PATIENCE => {
                format!(
                    ". Shorter: --max-queries {few} takes about a quarter, --only CHECK makes one check alone"
                )
            }
            _ => String::new(),
        };
        format!(
            "plan: about {}{} in all: {search}checks that attack {} again {}{}, less if attacks succeed early{shorter}",
            range([checks, usual], span),
            at_most(usual, most, span),
            number_of_queries(queries),
            span(checks),
            at_most(checks, checks_most, span)
        )
    };
    let phase = |name: &str, queries: usize, [usual, most]: [f64; 2]| json!({ "phase": name, "queries": queries, "seconds": usual.round(), "seconds_at_most": most.round() });
    Announcement {
        text: (most >= WAIT).then(text),
        event: json!({ "event": "plan", "seconds": usual.round(), "seconds_at_most": most.round(),
            "phases": [phase("strong search", strong, strong_s), phase("checks", queries, checks_s)] }),
        seconds: usual,
        seconds_at_most: most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Suite;
    use crate::threat::Room;

    /// By hand: `ars` takes 512 steps for R1 as usual; of checks that take 600 and at most 900 rounds of 0.1
    /// s each a minute or more is told.
    #[test]
    fn the_doctor_tells_what_its_checks_take() {
        let (_, plan) = Suite::load("ars").unwrap().plan(28, 0).unwrap();
        let speed =
            Speed { room: Room { workers: 1, batch: 1 }, embed_s: 0.1, step_s: 0.3, photograph_s: 0.0 };
        let announced = |strong, usual, most| announcement(speed, &plan, strong, 16, Amount { usual, most });
        let text = announced(0, 600, 900).text.unwrap();
        assert_eq!(
            text,
            "plan: about 60 s, at most 90 s in all: checks that attack 16 queries again 60 s, at most 90 s, less if attacks \
             succeed early"
        );
        let text = announced(32, 60_000, 60_000).text.unwrap();
        for words in [
            "in all: strong search on 32 queries at most ",
            "again 1 h 40 min",
            "--max-queries 4 takes about a quarter",
        ] {
            assert!(text.contains(words), "{text}");
        }
        assert!(
            text.starts_with("plan: about 1 h 40 min to ") && text.contains("less if it succeeds early"),
            "{text}"
        );
        let event = announced(0, 600, 900).event;
        assert_eq!([&event["seconds"], &event["seconds_at_most"]], [&json!(60.0), &json!(90.0)]);
        assert_eq!(event["phases"][1]["seconds_at_most"], 90.0);
        assert_eq!(announced(0, 6, 9).text, None);
    }
}
