//! Matching the columns of a table with those that are known.

use audit_base::error::did_you_mean;

/// A column that a table may have.
pub struct Column {
    /// Name in this program.
    pub name: &'static str,
    /// Other names. A later group counts only if the table has no name of an earlier one.
    pub also: &'static [&'static [&'static str]],
    /// Content of its fields.
    pub holds: Holds,
    /// Whether a table must have it.
    pub needed: Needed,
    /// The flag by which a user names it; empty if there is none.
    pub flag: &'static str,
}

/// Whether a table must have a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Needed {
    Always,
    /// The column is required if the images have classes; [`super::Table::lacks`] reports it if missing.
    ForClasses,
    No,
}

/// Content of a column's fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// The path of an image.
    Image,
    /// Text, or a number.
    Text,
    /// Yes or no.
    Flag,
}

impl Column {
    pub const fn required(name: &'static str) -> Column {
        Column { name, also: &[], holds: Holds::Text, needed: Needed::Always, flag: "" }
    }

    pub const fn optional(name: &'static str) -> Column {
        Column { needed: Needed::No, ..Column::required(name) }
    }
}

/// A kind of table.
pub struct Form {
    /// Its columns, in the order in which they are matched: a matched column is not available to later ones.
    pub columns: &'static [Column],
    /// Columns of a list without a header, in order; empty if a header is required.
    pub bare: &'static [&'static str],
    /// Description of the table for the user.
    pub about: &'static str,
}

/// Names in this program → names in the table, given by the user.
pub type Named<'a> = &'a [(&'static str, &'a str)];

/// The columns of a table, by their names in this program.
pub struct Columns {
    /// Names in the table.
    pub header: Vec<String>,
    /// Name in this program and index in the header, of each column of the form that exists.
    pub places: Vec<(&'static str, usize)>,
    /// Columns that weren't matched by a usual name: their names in this program.
    pub guessed: Vec<&'static str>,
    /// Reason against images with classes: their column is missing or ambiguous.
    pub lacks: Option<String>,
}

impl Columns {
    /// Errors: a required column is missing, or several columns match.
    pub fn from_header(header: Vec<String>, form: &Form, named: Named) -> Result<Columns, String> {
        let mut columns = Columns { header, places: Vec::new(), guessed: Vec::new(), lacks: None };
        for &(column, name) in named {
            let at = columns.named(name)?;
            columns.places.push((column, at));
        }
        for column in form.columns.iter().filter(|column| named.iter().all(|(own, _)| *own != column.name)) {
            columns.find(column)?;
        }
        columns.take_the_only_one(form);
        columns.require(form)?;
        Ok(columns)
    }

    /// The column that a user names.
    fn named(&self, name: &str) -> Result<usize, String> {
        let at = self.header.iter().position(|own| own == name);
        let at = at.or_else(|| self.header.iter().position(|own| plain(own) == plain(name)));
        at.ok_or_else(|| {
            let near = did_you_mean(name, &self.header);
            format!("there is no column `{name}`{near}. Found are {}", self.header.join(", "))
        })
    }

    /// Matches a column by the first group of its names of which the table has one.
    fn find(&mut self, column: &Column) -> Result<(), String> {
        let own: &[&str] = &[column.name];
        for (group, names) in std::iter::once(&own).chain(column.also).enumerate() {
            let is_one = |at: &usize| names.iter().any(|name| plain(name) == plain(&self.header[*at]));
            let claims: Vec<usize> =
                (0..self.header.len()).filter(|&at| self.is_free(at)).filter(is_one).collect();
            match claims[..] {
                [] => continue,
                [at] => {
                    self.places.push((column.name, at));
                    self.guessed.extend((group > 1).then_some(column.name));
                }
                [first, second, ..] => {
                    let what = self.ambiguous(column, [first, second]);
                    self.lack(column.needed, what)?;
                }
            }
            break;
        }
        Ok(())
    }

    /// Why a column can't be matched, if two of the table have names of it.
    fn ambiguous(&self, column: &Column, [first, second]: [usize; 2]) -> String {
        let [a, b] = [first, second].map(|at| self.shown(at));
        let alike = plain(&self.header[first]) == plain(&self.header[second]);
        let which = match column.flag {
            flag if flag.is_empty() || alike => format!("Name only the right one `{}`", column.name),
            flag => format!("Say which: {flag} {}", self.header[first]),
        };
        format!("{a} and {b} may both be `{}`. {which}", column.name)
    }

    /// Refuses a table without a column that it must have.
    fn require(&mut self, form: &Form) -> Result<(), String> {
        let all = self.header.join(", ");
        for Column { name, needed, flag, .. } in form.columns {
            if *needed == Needed::No || self.place(name).is_some() || self.lacks.is_some() {
                continue;
            }
            let free = (0..self.header.len()).any(|at| self.is_free(at));
            let rename = match free {
                true if flag.is_empty() => format!(". Name one of them `{name}`"),
                true => format!(". Say which of them it is, {flag} NAME, or name it `{name}`"),
                false => String::new(),
            };
            let about = form.about;
            let what =
                format!("the header lacks the column `{name}`. Found are {all}{rename}. Expected is {about}");
            self.lack(*needed, what)?;
        }
        Ok(())
    }

    /// Refuses the table, or only its use for images with classes.
    fn lack(&mut self, needed: Needed, what: String) -> Result<(), String> {
        match needed {
            Needed::ForClasses => self.lacks = Some(what),
            Needed::Always | Needed::No => return Err(what),
        }
        Ok(())
    }

    /// If one required column of text is missing and the table has one other column, takes that column.
    fn take_the_only_one(&mut self, form: &Form) {
        let missing = form
            .columns
            .iter()
            .filter(|column| column.needed != Needed::No && self.place(column.name).is_none());
        let missing: Vec<&Column> = missing.collect();
        // A column with the name of another one is not taken.
        let other = |name: &str| form.columns.iter().any(|column| plain(column.name) == plain(name));
        let may =
            |at: &usize| self.is_free(*at) && !is_unnamed(&self.header[*at]) && !other(&self.header[*at]);
        let free: Vec<usize> = (0..self.header.len()).filter(may).collect();
        if let ([column], [at]) = (&missing[..], &free[..])
            && column.holds != Holds::Image
        {
            self.places.push((column.name, *at));
            self.guessed.push(column.name);
        }
    }

    pub fn is_free(&self, at: usize) -> bool {
        self.places.iter().all(|(_, taken)| *taken != at)
    }

    pub fn place(&self, column: &str) -> Option<usize> {
        self.places.iter().find(|(name, _)| *name == column).map(|(_, at)| *at)
    }

    /// A column in messages.
    fn shown(&self, at: usize) -> String {
        format!("column {}, `{}`,", at + 1, self.header[at])
    }
}

/// A name without differences of spelling: `Image Path` is `image_path`.
pub fn plain(name: &str) -> String {
    name.chars().filter(|letter| !matches!(letter, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

/// Whether a column has no real name, like the row numbers that pandas writes into CSV and Parquet.
pub fn is_unnamed(name: &str) -> bool {
    name.is_empty() || name.starts_with("Unnamed: ") || name.starts_with("__index_level_")
}
