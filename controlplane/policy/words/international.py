"""Names of languages, formats and tools, which people of all languages write alike. Data only."""

from __future__ import annotations

from controlplane.policy.words.lists import Topic, WordList, listed

LISTS: tuple[WordList, ...] = (
    WordList(
        Topic.CODE,
        "mul",
        listed("""
            python, python3, javascript, typescript, java, kotlin, c++, c#, golang, php, sql, html, css, bash,
            regex, regexp, api, rest api, def, elif, struct, async, stdin, stdout, stderr, printf, println,
            #include, pytest, dockerfile, docker compose, powershell, haskell, fortran, cobol, matlab, erlang,
            clojure, visual basic, vba, mysql, postgres, postgresql, sqlite, mongodb, graphql, django, flask,
            fastapi, laravel, spring boot, numpy, pandas, pytorch, tensorflow, opencv, jquery, reactjs, node js,
            nodejs, vue js, webpack, npm, pip install, github, gitlab, kubectl, terraform, ansible, makefile,
            cmake, gcc, cuda, glsl, shader, wordpress, console log, std, nullptr, nullpointerexception, typeerror,
            valueerror, keyerror, indexerror, syntaxerror, attributeerror, segfault, stacktrace, traceback,
            leetcode, localhost, backend, frontend"""),
        listed("""
            rust, ruby, git, docker, kubernetes, linux, import, return, null, var, const, lambda, array, bug,
            string, int, bool, boolean, void, url, http, server, excel"""),
    ),
    WordList(
        Topic.MATH, "mul", listed("km h, m s, f x, mod, sqrt, x y, 2x, 3x, 4x, 5x, cos, sin x, ln x, log x, latex"), ()
    ),
    WordList(
        Topic.DATA,
        "mul",
        listed("json, jsonl, xml, yaml, csv, toml, tsv, markdown table, json schema"),
        listed("schema, markdown, yyyy mm dd"),
    ),
    WordList(
        Topic.CREATIVE, "mul", listed("haiku, haikus, limerick, fanfic, fan fiction, storytelling"), listed("blog")
    ),
    WordList(Topic.CONVERSATION, "mul", listed("hi, hello, hey, lol, haha"), ()),
    WordList(Topic.DIGEST, "mul", listed("tldr, tl dr"), ()),
)
