//! Lists of pairs.

use super::*;

/// class, probe, reference, kind and group of each pair, in short.
fn pairs(data: &Dataset) -> Vec<String> {
    let group =
        |p: &audit::data::ListedPair| p.group.clone().map_or(String::new(), |group| format!(" {group}"));
    let sign = |p: &audit::data::ListedPair| if p.same { "=" } else { "≠" };
    data.pairs.iter().map(|p| format!("{} {} {}{}", p.probe, sign(p), p.reference, group(p))).collect()
}

#[test]
fn pairs_of_a_table() {
    let root = Transcript::new(Temp::new());
    images(&root, &["a/1.png", "a/2.png", "b/1.png", "b/2.png", "c/1.png"]);
    let list = |rows: &str| root.write("pairs.csv", format!("path_a,path_b,same,group\n{rows}"));
    let at =
        list("a/2.png,a/1.png,true,x\nb/1.png,b/2.png,1,\na/2.png,b/1.png,False,y z\nc/1.png,b/2.png,0,x\n");
    let data = open(&at, None);
    // Identities are the components of genuine pairs, named by the first of their images; images of second
    // columns only are no queries.
    let first = ["a/1.png: a/1.png g", "a/1.png: a/2.png"];
    assert_eq!(summary(&data)[..2], first);
    assert_eq!(summary(&data)[2..], ["b/1.png: b/1.png", "b/1.png: b/2.png g", "c/1.png: c/1.png"]);
    let listed = ["a/2.png = a/1.png x", "b/1.png = b/2.png", "a/2.png ≠ b/1.png y z", "c/1.png ≠ b/2.png x"];
    assert_eq!(pairs(&data), listed);
    assert!(data.source.ends_with("pairs.csv (pairs, 2 genuine and 2 impostor pairs)"), "{}", data.source);
    decodes(&data);
    for rows in [
        "a/1.png,a/2.png,true,\na/1.png,a/1.png,false,\n",
        "a/1.png,a/2.png,maybe,\n",
        "a/1.png,a/2.png,,\n",
        "a/1.png,,true,\n",
        "a/1.png,a/2.png,true\n",
        "a/1.png,d/9.png,false,\n",
        "a/1.png,b/1.png,1,\nb/1.png,c/1.png,1,\nc/1.png,a/1.png,0,\n",
        "",
    ] {
        refused(&root, &list(rows));
    }
    // A pair that is listed again, in the same order or in the other, is read and told.
    let note = |rows: &str| open(&list(rows), None).notes.join("; ").replace(&root.display().to_string(), "");
    assert_eq!(note("a/1.png,a/2.png,1,\na/1.png,b/1.png,0,\nb/1.png,a/2.png,0,\n"), "");
    let twice = note("a/1.png,a/2.png,1,\nb/1.png,a/1.png,0,\na/1.png,b/1.png,0,\na/1.png,a/2.png,1,\n");
    says(&twice, &["pairs.csv, line 4: the pair of `a/1.png` and `b/1.png` was listed before, at "]);
    says(&twice, &["pairs.csv, line 3 (2 rows repeat a pair). Error rates"]);
    refused_with(&root, &at, "pairs.csv", "path_a,path_c,same\n");
    refused_as(&root, None, &at, Some(Split::Test));
    // Lists of single images stay single.
    let single = root.write("single.csv", "path,label\na/1.png,a\na/2.png,a\n");
    assert!(open(&single, None).pairs.is_empty());
    insta::assert_snapshot!(root.told());
}

#[test]
fn pairs_of_lfw() {
    let root = Transcript::new(Temp::new());
    let folder = |name: &str| format!("lfw/{name}/{name}");
    let photos = [("Ann_Lee", 1), ("Ann_Lee", 12), ("Bo", 1), ("Bo", 3)];
    images(&root, &photos.map(|(name, i)| format!("{}_{i:04}.jpg", folder(name))));
    let list = |text: &str| root.write("pairs.txt", text);
    list("2\t1\nAnn_Lee\t1\t12\nAnn_Lee\t1\tBo\t3\nBo\t3\t1\nBo\t1\tAnn_Lee\t12\n");
    for at in [root.to_path_buf(), root.join("pairs.txt")] {
        let data = open(&at, None);
        let first = ["Ann_Lee: Ann_Lee/Ann_Lee_0001", "Ann_Lee: Ann_Lee/Ann_Lee_0012 g"];
        assert_eq!(summary(&data)[..2], first);
        assert_eq!(summary(&data)[2..], ["Bo: Bo/Bo_0001", "Bo: Bo/Bo_0003"]);
        assert_eq!(pairs(&data)[0], "Ann_Lee/Ann_Lee_0001 = Ann_Lee/Ann_Lee_0012");
        assert_eq!(pairs(&data)[3], "Bo/Bo_0001 ≠ Ann_Lee/Ann_Lee_0012");
        decodes(&data);
    }
    for text in [
        "10\t300\nAnn_Lee\t1\t12\n",
        "1\nAnn_Lee\t1\tx\nBo\t1\tAnn_Lee\t1\n",
        "1\nAnn_Lee\t1\n",
        "1\nAnn_Lee\t1\tAnn_Lee\t12\n",
        "1\nAnn_Lee\t1\t2\nBo\t1\tAnn_Lee\t1\n",
        "x y z\n",
        "1 2 3\n",
        "",
    ] {
        list(text);
        refused(&root, &root);
    }
    insta::assert_snapshot!(root.told());
}

/// Pairs are recognised by the content of the list, whatever its name.
#[test]
fn pairs_of_other_programs_are_read() {
    let root = Transcript::new(Temp::new());
    let names = ["Abel_Pacheco", "Al-Ani", "Bush_Jr.", "José_Ángel", "O'Neal", "Zico"];
    let files = names.iter().flat_map(|n| (1..=4).map(move |i| format!("lfw/{n}/{n}_{i:04}.jpg")));
    images(&root, &files.collect::<Vec<_>>());
    for (name, before, after) in [("pairsDevTest.txt", "", ""), ("pairs_label.csv", "lfw/", ".jpg")] {
        fs::copy(list_file(name), root.join(name)).unwrap();
        let found = open(&root.join(name), None);
        let [one, two] = [1, 2].map(|i| format!("{before}Abel_Pacheco/Abel_Pacheco_000{i}{after}"));
        assert_eq!(pairs(&found)[0], format!("{one} = {two}"));
        says(&found.source, &["(pairs, ", "genuine and"]);
        decodes(&found);
    }
    let [one, two] = ["Zico/Zico_0001", "Zico/Zico_0002"];
    let [same, other] = [format!("{one} = {two}"), format!("{one} ≠ O'Neal/O'Neal_0003")];
    let read = |name: &str, content: &str| pairs(&open(&root.write(name, content), None));
    // LFW's list without its first line, with names that have blanks, and as a table.
    assert_eq!(read("dev.txt", "Zico 1 2\nZico 1 O'Neal 3\n"), [same.clone(), other.clone()]);
    images(&root, &["lfw/Pelé Jr/Pelé Jr_0001.jpg"]);
    let blanks = read("dev.txt", "Zico\t1\t2\nZico\t1\tPelé Jr\t1\n");
    assert_eq!(blanks[1], format!("{one} ≠ Pelé Jr/Pelé Jr_0001"));
    let kaggle = "name,imagenum1,imagenum2,\nZico,1,2,\nZico,1,O'Neal,3\n";
    assert_eq!(read("kaggle.csv", kaggle), [same, other]);
    // Tables and lists of paths, beside the images' folder; words for yes and no.
    let (path, third) = (|stem: &str| format!("{stem}.jpg"), "O'Neal/O'Neal_0003");
    for [yes, no] in [["yes", "no"], ["1", "0"], ["True", "FALSE"], ["same", "different"], ["1", "-1"]] {
        let rows = [[two, yes], [third, no]].map(|[b, word]| [path(one), path(b), word.to_string()]);
        for (name, head, mark) in [
            ("list.txt", "", " "),
            ("list.csv", "", ","),
            ("list.csv", "Image1;Image2;Match\n", ";"),
            ("list.tsv", "path_1\tpath_2\tis_same\n", "\t"),
        ] {
            let body = rows.each_ref().map(|row| row.join(mark) + "\n").concat();
            let expected =
                [format!("{} = {}", path(one), path(two)), format!("{} ≠ {}", path(one), path(third))];
            assert_eq!(read(name, &format!("{head}{body}")), expected, "{name} {head}{body}");
        }
    }
    let refuses = |name: &str, content: &str| refused(&root, &root.write(name, content));
    refuses("list.csv", "image1,image2\nZico/Zico_0001.jpg,Zico/Zico_0002.jpg\n");
    refuses("list.csv", "image1,image2,score,date\nZico/Zico_0001.jpg,Zico/Zico_0002.jpg,3,4\n");
    let both = "Zico/Zico_0001.jpg Zico/Zico_0002.jpg";
    refuses("list.txt", &format!("{both} 1\n{both} maybe\n"));
    insta::assert_snapshot!(root.told());
}
