//! The strong search: an ensemble of searches.

use super::*;

/// Runs the strong search. Returns the outcomes in the order of the trials.
fn go_strong(
    model: &mut Linear,
    context: &AttackContext,
    images: &ImageSource,
    trials: &[Trial],
    plan: &Plan,
    effort: usize,
) -> Vec<(Outcome, Evidence)> {
    let (others, largest) = (Others { images, shape: model.shape() }, model.pixels());
    let strong = Strong { context, images, trials, plan, effort, others, largest, files: None };
    let mut found: Vec<Option<(Outcome, Evidence)>> = vec![None; trials.len()];
    let mut ahead = Ahead::default();
    let mut see = |event: Event| {
        match event {
            Event::Step { passes, .. } => ahead.see(passes),
            Event::Further(_) | Event::Broken(_) => (),
            Event::Done(i, outcome, evidence) => found[i] = Some((outcome.clone(), evidence.clone())),
        }
        ControlFlow::Continue(())
    };
    let mut workers = |pass, work: &mut OnWorkers| match pass {
        Route::Exact => work(vec![&mut *model]).map(|()| true),
        _ => Ok(false),
    };
    strong.run(&mut workers, &mut see).unwrap();
    found.into_iter().map(|found| found.expect("each trial is reported")).collect()
}

/// Towards the target, with one step along the exact gradient and then a random search from there.
static WARM: Objective = Objective {
    loss: |context, form, trial| match Objective::find("GTM") {
        Ok(gtm) => (gtm.loss)(context, form, trial),
        Err(e) => panic!("{e}"),
    },
    members: &[
        &[Member { facts: &MemberFacts::by_gradient("first", ""), search: &COSINE, steps: 1, ..MEMBER }],
        &[Member {
            facts: &MemberFacts::by_gradient("warm", ""),
            search: &RANDOM,
            steps: 1,
            from: From::Best,
            ..MEMBER
        }],
        &[Member { facts: &MemberFacts::by_gradient("cold", ""), search: &RANDOM, steps: 1, ..MEMBER }],
        &[Member { facts: &MemberFacts::by_gradient("soft", ""), route: Route::Softened, ..MEMBER }],
    ],
    ..es::ES
};

const MEMBER: Member = Member {
    facts: &MemberFacts::by_gradient("", ""),
    loss: |context, form, trial, _| (trial.objective.loss)(context, form, trial),
    aims: Aims::One,
    route: Route::Exact,
    or: None,
    needs: None,
    search: &COSINE,
    steps: 1,
    alpha: Some(1.0),
    from: From::Clean,
    until: None,
    at_once: 1,
    closing: false,
};

/// A random search that begins at the best image so far keeps it if it finds nothing better: at the minimum
/// there is nothing. A random search that begins at stripes has lost it. A member whose route the model lacks
/// is not in the record.
#[test]
fn a_warm_start_begins_where_another_search_ended() {
    let Toy { mut model, images, context, trials, lowest, .. } = toy(&WARM);
    let (image, plan) = (source(&images), plan(Form::Corrected));
    let (outcome, evidence) = go_strong(&mut model, &context, &image, &trials, &plan, 1).remove(0);
    assert!((outcome.loss_last - lowest).abs() < 1e-4, "{outcome:?}, expected {lowest}");
    let members = outcome.members.as_ref().unwrap();
    let names: Vec<&str> = members.iter().map(|m| m.member.as_str()).collect();
    assert_eq!(names, ["first", "warm", "cold"]);
    assert!(members.iter().all(|m| m.steps == 1 && !m.reached), "{members:?}");
    assert_eq!(outcome.steps, 3);
    // Among equals the first counts.
    assert_eq!(members.iter().map(|m| m.counts).collect::<Vec<_>>(), [true, false, false]);
    let reached = model.raw(&evidence.image)[[0, 0]];
    assert!((f64::from(reached) + lowest - coordinate(&context, 39)).abs() < 1e-4);
    assert!(evidence.losses.len() > 1);
}

/// A random search by whole grey levels towards the target, and one of any steps from what it found.
static BY_LEVELS: Objective = Objective {
    members: &[
        &[Member {
            facts: &MemberFacts::by_values("levels", ""),
            search: &RANDOM_8_BIT,
            steps: 300,
            ..MEMBER
        }],
        &[Member {
            facts: &MemberFacts::by_values("warm", ""),
            search: &RANDOM,
            steps: 1,
            from: From::Best,
            ..MEMBER
        }],
    ],
    ..WARM
};

/// The first search reaches 8 grey levels, which lie beyond the published 0.03137, in each pixel. The second
/// finds nothing better, so that its first image is its result: it must lie within 0.03137.
#[test]
fn a_search_begins_within_its_own_bounds() {
    let Toy { mut model, images, context, trials, .. } = toy(&BY_LEVELS);
    let (image, plan) = (source(&images), Plan { eps: 0.03137, ..plan(Form::Corrected) });
    let (outcome, _) = go_strong(&mut model, &context, &image, &trials, &plan, 1).remove(0);
    assert_eq!(outcome.members.unwrap().len(), 2);
    assert!(outcome.linf > 0.031372, "{}", outcome.linf);
}

/// Falls along the only dimension up to a way of 0.5 from the clean image, and is lowest and flat beyond.
fn flat_far_away<'a>(context: &'a AttackContext, _: Form, trial: &Trial, _: Option<usize>) -> Loss<'a> {
    let clean = context.gallery.point(trial.query)[0];
    Loss::Point(Box::new(move |z, _, gradient| {
        let way = z[0] - clean;
        if way.abs() > 0.5 {
            return -1.0;
        }
        gradient[0] = -1.0;
        f64::from(-way)
    }))
}

static FROM_FAR_AWAY: Objective = Objective {
    members: &[&[Member {
        facts: &MemberFacts::by_gradient("multi-ε", ""),
        loss: flat_far_away,
        search: &MULTI_EPS,
        alpha: Some(0.5),
        steps: 20,
        ..MEMBER
    }]],
    ..WARM
};

/// The way within ε is ε·‖w‖, which is less than 0.5. The first step goes farther, to where there is no
/// gradient: the search goes on, and ends within ε.
#[test]
fn a_search_that_comes_from_outside_its_ball_ends_inside() {
    let Toy { mut model, images, context, trials, .. } = toy(&FROM_FAR_AWAY);
    let l2 = BALLS.iter().find(|ball| ball.name == "l2").unwrap();
    let (image, plan) = (source(&images), Plan { ball: l2, ..plan(Form::Corrected) });
    let (outcome, evidence) = go_strong(&mut model, &context, &image, &trials, &plan, 1).remove(0);
    assert!(evidence.losses.contains(&-1.0), "{:?}", evidence.losses);
    assert!((0.099..0.10001).contains(&outcome.size.unwrap()), "{outcome:?}");
}

/// By hand, in changes of every pixel towards the other class: the query lies at 0, the other image of its
/// class at -0.001, and the nearest of the other class at 0.02, so that 0.0095 is enough. ε is 0.1, an eighth
/// of it is above 0.0095, and no gradient leads there: random search goes down to the eighth, and passes by
/// no smaller change.
#[test]
fn a_search_without_gradients_goes_down_the_ladder() {
    let w = random(1, 3);
    let at = |by: f32| w.iter().map(|v| 0.5 + by * v.signum()).collect::<Vec<f32>>();
    let images = Vec::from([0.0, -0.001, 0.02, 0.03].map(at));
    let mut model = Linear { flat: true, ..Linear::new(w.clone(), 3) };
    let context = classes(&model, Metric::Euclidean, &images, vec![0, 0, 1, 1]);
    let trials = drawn(&context, "R1", Form::Corrected, &[0]);
    let (image, plan) = (source(&images), Plan { ladder: Some(4), ..plan(Form::Corrected) });
    let (outcome, _) = go_strong(&mut model, &context, &image, &trials, &plan, 1).remove(0);
    let enough = outcome.enough.unwrap();
    assert!((0.0094..0.01251).contains(&enough.size.unwrap()) && !enough.passed_by, "{enough:?}");
}

/// A random search of 300 images towards the target, one image or several at once.
static AT_ONCE: [Objective; 3] = {
    const SEARCHED: Member = Member { search: &RANDOM, steps: 300, ..MEMBER };
    [
        Objective { members: &[&[SEARCHED]], ..WARM },
        Objective { members: &[&[Member { at_once: 4, ..SEARCHED }]], ..WARM },
        Objective { members: &[&[Member { at_once: 7, ..SEARCHED }]], ..WARM },
    ]
};

/// Images tried at once are as many as one after another, in fewer passes, and the same in a batch of any
/// size. The result is the best of all of them: it comes as near to the minimum.
#[test]
fn a_random_search_tries_several_images_at_once() {
    for (objective, each) in AT_ONCE.iter().zip([1, 4, 7]) {
        let mut first: Option<Outcome> = None;
        for batch in [1, 2, 8] {
            let Toy { mut model, images, context, trials, lowest, .. } = toy(objective);
            model.batch = batch;
            let (image, plan) = (source(&images), plan(Form::Corrected));
            let (outcome, evidence) = go_strong(&mut model, &context, &image, &trials, &plan, 1).remove(0);
            assert_eq!(outcome.steps, 300);
            let way = outcome.loss_first - lowest;
            assert!(outcome.loss_last - lowest < 0.1 * way, "{each} at once: {outcome:?}, lowest {lowest}");
            assert_eq!(outcome.loss_last, outcome.loss_best);
            let reached = model.raw(&evidence.image)[[0, 0]];
            assert!((f64::from(reached) + outcome.loss_last - coordinate(&context, 39)).abs() < 1e-4);
            let passes = 300usize.div_ceil(each) * each.div_ceil(batch);
            let what = format!("{each} at once in batches of {batch}");
            assert!((passes..=passes + 3).contains(&model.embeds), "{what}: {}", model.embeds);
            assert_eq!(*first.get_or_insert(outcome.clone()), outcome, "{what}");
        }
    }
}

/// Two moves towards the target, each along the mean gradient of JPEG files of three qualities.
static QUALITIES_OF: Objective = Objective {
    members: &[&[Member {
        facts: &MemberFacts::by_gradient("qualities", ""),
        search: &MOMENTUM,
        steps: 6,
        at_once: QUALITIES.len(),
        ..MEMBER
    }]],
    ..WARM
};

/// The target lies between the embedding of the file itself and those of its neighbours, so that the mean
/// gradient points against the file's own. A step embeds all three, and the farthest counts.
#[test]
fn a_search_on_jpeg_files_goes_along_the_mean_gradient_of_several_qualities() {
    let (w, shape) = (random(1, 3), [1, 8, 96]);
    let way = Resampling::new(&Preparation::new(1, 1, PIXELS), shape).unwrap().through_jpeg(Some(50));
    let mut opposite = 0;
    for seed in 0..20 {
        let mut next = numbers(seed + 1);
        let photograph: Vec<f32> = (0..8 * 96).map(|_| ((60.0 + 120.0 * next()).round()) / 255.0).collect();
        let mut model = Linear::new(w.clone(), 2);
        let mut inputs = vec![vec![0.0; PIXELS]; QUALITIES.len()];
        for (place, input) in inputs.iter_mut().enumerate() {
            way.apply_at(place, &photograph, input).unwrap();
        }
        let z: Vec<f32> = inputs.iter().map(|x| model.raw(x)[[0, 0]]).collect();
        let beside = if z[1] > z[0] { z[1].min(z[2]) } else { z[1].max(z[2]) };
        if (z[1] > z[0]) != (z[2] > z[0]) || (beside - z[0]).abs() < 1e-4 {
            continue;
        }
        opposite += 1;
        let target = (z[0] + beside) / 2.0;
        let raw = Array2::from_shape_vec((2, 1), vec![z[0], target]).unwrap();
        let ids = ["query", "target"].map(String::from).to_vec();
        let gallery = Gallery::new(Metric::Euclidean, raw, vec![0, 1], ids).unwrap();
        let context = crate::common::context(gallery);
        let trials = [Trial { objective: &QUALITIES_OF, query: 0, targets: vec![1] }];
        let plan = Plan { space: Space::File, eps: 8.0 / 255.0, ..plan(Form::Corrected) };
        let image = |_| Ok(CleanImage { data: photograph.clone(), resampling: Some(Arc::new(way.clone())) });
        let (outcome, evidence) = go_strong(&mut model, &context, &image, &trials, &plan, 1).remove(0);
        assert_eq!((outcome.steps, model.seen.len()), (6, 6));
        for (found, expected) in model.seen.iter().zip(&inputs) {
            assert_eq!(found.0, *expected);
        }
        let farthest = z.iter().map(|z| f64::from((z - target).abs())).fold(0.0, f64::max);
        assert!((evidence.losses[0] - farthest).abs() < 1e-5, "{}, expected {farthest}", evidence.losses[0]);
        let moved = model.raw(&model.seen[3].0)[[0, 0]] - z[0];
        // A move towards the target would be worse for two of three files.
        assert!(moved * (target - z[0]) < 0.0, "seed {seed}: {z:?}, {target}: moved by {moved}");
    }
    assert!(opposite > 2, "{opposite} photographs tell the two apart");
}

/// The strong search on a net of two pixels, whose embedding is the image. The test counts by distances what
/// each point of a grid over the box captures of the sample. Hubs capture at least three quarters of the
/// grid's best.
#[test]
fn a_hub_captures_what_an_exhaustive_search_does() {
    let mut next = numbers(77);
    let images: Vec<Vec<f32>> = (0..80).map(|_| vec![next(), next()]).collect();
    let mut model = Linear::new(Array2::eye(2), 4);
    let context = context(&model, Metric::Euclidean, &images);
    let eps = 0.2;
    let selected = select(&context, find("HUB"), 30, Form::Corrected, 3, &[4, 31, 62, 70]).unwrap();
    let captured = |trial: &Trial, z: &[f32; 2]| {
        let far = |a: &[f32], b: &[f32]| f64::from((a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2));
        let rank = |&q: &usize| {
            let at = far(&images[q], z);
            (0..80).filter(|&i| i != q && i != trial.query && far(&images[q], &images[i]) < at).count()
        };
        let ranks: Vec<usize> = trial.targets.iter().map(rank).collect();
        [1, 10].map(|k| ranks.iter().filter(|rank| **rank < k).count()).iter().sum::<usize>() as f64 / 60.0
    };
    let plan = Plan { eps, ..plan(Form::Corrected) };
    let trials = &selected.trials;
    let outcomes = go_strong(&mut model, &context, &source(&images), trials, &plan, 9);
    assert_eq!(outcomes.len(), 4);
    let (mut found, mut grid) = (0.0, 0.0);
    for ((outcome, _), trial) in outcomes.iter().zip(trials) {
        let centre = &images[trial.query];
        let step = |k: usize, c: f32| (c - eps + 2.0 * eps * k as f32 / 60.0).clamp(0.0, 1.0);
        let places = (0..=60).flat_map(|x| (0..=60).map(move |y| (x, y)));
        let points = places.map(|(x, y)| captured(trial, &[step(x, centre[0]), step(y, centre[1])]));
        grid += points.fold(0.0, f64::max);
        let sample = |m: &Measures| m.captured.as_ref().unwrap().sample.iter().sum::<f64>() / 2.0;
        assert!((sample(&outcome.before) - captured(trial, &[centre[0], centre[1]])).abs() < 1e-9);
        found += sample(&outcome.after);
    }
    assert!(found >= 0.75 * grid, "{found} of {grid}");
}
