//! Which keys are asked for.

use rand::{Rng, SeedableRng, rngs::SmallRng};
use rand_distr::{Distribution, Normal, Zipf};
use std::{cell::Cell, rc::Rc, str::FromStr};

/// A third of what [`Pattern::Scan`] draws comes in order.
const SCANNED: f64 = 1.0 / 3.0;
/// How often [`Pattern::Shift`] changes what is popular, while as many numbers are drawn as there are.
const SHIFTS: u64 = 4;

/// How numbers are drawn.
#[derive(Clone, Copy)]
pub enum Pattern {
    /// All alike.
    Uniform,
    /// In order of rank by this exponent; which number has which rank is spread over all.
    Zipf(f64),
    /// Around the middle of the numbers; the standard deviation as a share of all of them.
    Gauss(f64),
    /// One after the other.
    Sequential,
    /// The same, over and over, of the first ones; how many, as a share of all.
    Loop(f64),
    /// Like Zipf, and among it a scan over all.
    Scan(f64),
    /// Like Zipf, but from time to time other numbers become popular.
    Shift(f64),
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let (name, parameter) = text.split_once(':').unwrap_or((text, ""));
        let positive = || match parameter.parse::<f64>() {
            Ok(number) if number > 0.0 => Ok(number),
            _ => Err(format!("{name} wants a number above 0, as {name}:0.99")),
        };
        match name {
            "uniform" => Ok(Pattern::Uniform),
            "zipf" => positive().map(Pattern::Zipf),
            "gauss" => positive().map(Pattern::Gauss),
            "sequential" => Ok(Pattern::Sequential),
            "loop" => positive().map(Pattern::Loop),
            "scan" => positive().map(Pattern::Scan),
            "shift" => positive().map(Pattern::Shift),
            _ => Err(format!(
                "{text} is none of uniform, zipf:EXPONENT, gauss:DEVIATION, sequential, loop:SHARE, scan:EXPONENT, shift:EXPONENT"
            )),
        }
    }
}

/// Draws numbers below `count`.
pub struct Numbers {
    /// Where chance comes from, for others, too.
    pub random: SmallRng,
    count: u64,
    pattern: Pattern,
    zipf: Option<Zipf<f64>>,
    next: Rc<Cell<u64>>,
}

impl Numbers {
    /// `seed`: another one draws others. `next`: the next number in order, which several may share.
    ///
    /// # Errors
    /// No numbers can be drawn so.
    pub fn new(
        pattern: Pattern,
        count: u64,
        seed: u64,
        next: Rc<Cell<u64>>,
    ) -> Result<Numbers, rand_distr::ZipfError> {
        let zipf = match pattern {
            Pattern::Zipf(exponent) | Pattern::Scan(exponent) | Pattern::Shift(exponent) => {
                Some(Zipf::new(count as f64, exponent)?)
            }
            _ => None,
        };
        Ok(Numbers { random: SmallRng::seed_from_u64(seed), count, pattern, zipf, next })
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        match self.pattern {
            Pattern::Uniform => self.random.random_range(0..self.count),
            Pattern::Zipf(_) => self.draw_zipf(0),
            Pattern::Gauss(deviation) => {
                let spread = Normal::new(0.5, deviation).expect("a deviation above 0");
                let share: f64 = std::iter::repeat_with(|| spread.sample(&mut self.random))
                    .find(|share| (0.0..1.0).contains(share))
                    .expect("some lie within");
                (share * self.count as f64) as u64
            }
            Pattern::Sequential => self.step() % self.count,
            Pattern::Loop(share) => self.step() % ((share * self.count as f64) as u64).clamp(1, self.count),
            Pattern::Scan(_) if self.random.random_bool(SCANNED) => self.step() % self.count,
            Pattern::Scan(_) => self.draw_zipf(0),
            Pattern::Shift(_) => {
                let shifts = self.step() / (self.count / SHIFTS).max(1);
                self.draw_zipf(shifts)
            }
        }
    }

    fn step(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// `shifts`: how often other numbers have become popular.
    fn draw_zipf(&mut self, shifts: u64) -> u64 {
        let rank = self.zipf.expect("made for this pattern").sample(&mut self.random) as u64 - 1;
        let place = u128::from(rank) + u128::from(shifts) * u128::from(self.count / 10);
        // A prime that divides no count of keys in use: each rank has a number of its own.
        (place * 2_654_435_761 % u128::from(self.count)) as u64
    }
}
