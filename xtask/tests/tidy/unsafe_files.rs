//! Unsafe code stands only in the files that ARCHITECTURE.md lists, and the list has no other files.

use std::collections::BTreeSet;
use std::fs;

use super::{Source, check, files, root};

const HEADING: &str = "Files with unsafe code";

/// Files in the list below the heading, up to the next heading: lines that begin with "- `path`".
fn listed(architecture: &str) -> BTreeSet<String> {
    let heading = |line: &str| line.starts_with('#');
    architecture
        .lines()
        .skip_while(|line| !(heading(line) && line.trim_start_matches('#').trim() == HEADING))
        .skip(1)
        .take_while(|line| !heading(line))
        .filter_map(|line| line.strip_prefix("- `")?.split('`').next())
        .map(str::to_owned)
        .collect()
}

/// Whether a line, its comment aside, opens something unsafe. `unsafe_code` in an attribute does not.
fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().expect("a split has at least one part");
    let opens = |rest: &str| {
        let what = rest.trim_start();
        what.is_empty()
            || ["{", "(", "fn ", "impl", "trait ", "extern "]
                .iter()
                .any(|kind| what.starts_with(kind))
    };
    let own_word = |before: &str| {
        !before.ends_with(|last: char| last.is_alphanumeric() || last == '_' || last == '"')
    };
    code.match_indices("unsafe").any(|(at, word)| {
        let (before, rest) = (&code[..at], &code[at + word.len()..]);
        own_word(before) && !rest.starts_with('_') && opens(rest)
    })
}

fn has_unsafe(file: &Source) -> bool {
    file.text.lines().any(is_unsafe)
}

#[test]
fn unsafe_code_is_where_the_architecture_says() {
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let listed = listed(&architecture);
    let found: BTreeSet<String> =
        files("rs").into_iter().filter(has_unsafe).map(|file| file.path).collect();
    let unlisted = found.difference(&listed).map(|path| format!("{path} is not listed"));
    let stale = listed.difference(&found).map(|path| format!("{path} is listed, but has none"));
    let breaches: Vec<String> = unlisted.chain(stale).collect();
    check("ARCHITECTURE.md lists the files with unsafe code", &breaches);
}

#[test]
fn the_list_ends_at_the_next_heading() {
    let architecture = "\
# Architecture
- `graph/src/lib.rs`
## Files with unsafe code
Few.
- `ops/src/tile.rs`: hands out disjoint tiles
- `comm/src/region.rs`
### Other
- `data/src/lib.rs`
";
    let expected = ["comm/src/region.rs", "ops/src/tile.rs"].map(str::to_owned);
    assert_eq!(listed(architecture), BTreeSet::from(expected));
    assert_eq!(listed("# Architecture\n- `a.rs`\n"), BTreeSet::new());
}

#[test]
fn code_is_told_from_words_on_it() {
    let opening = [
        concat!("let x = un", "safe { y };"),
        concat!("pub un", "safe fn f() {}"),
        concat!("un", "safe impl Send for T {}"),
        concat!("un", "safe impl<T> Send for A<T> {}"),
        concat!("#[un", "safe(no_mangle)]"),
        concat!("un", "safe extern \"C\" {"),
        concat!("un", "safe"),
    ];
    for line in opening {
        assert!(is_unsafe(line), "{line}");
    }
    let harmless = [
        "#![forbid(unsafe_code)]",
        "#[expect(unsafe_code, reason = \"no other way\")]",
        "// SAFETY: this unsafe { block } is a comment",
        "let text = \"an unsafe thing\";",
        "unsafe_op_in_unsafe_fn = 1",
    ];
    for line in harmless {
        assert!(!is_unsafe(line), "{line}");
    }
}
