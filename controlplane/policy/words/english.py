"""English words. Data only."""

from __future__ import annotations

from controlplane.policy.words.lists import Topic, WordList, listed

LISTS: tuple[WordList, ...] = (
    WordList(
        Topic.CODE,
        "en",
        listed("""
            code, coding, codebase, programming, pseudocode, implement, implementation, algorithm, algorithms,
            regular expression, regular expressions, compile, compiler, debug, debugging, refactor, refactoring,
            unit test, unit tests, stack trace, syntax, source code, code snippet, linked list, binary tree,
            binary search, hash table, hash map, dynamic programming, pull request, software engineer,
            data structure, data structures, time complexity, command line, shell script, shell command,
            c program, c function, a program, program that, program to, a function, function that, function to,
            a class that, a script, script that, script to, web scraper, scraper, runtime error, syntax error,
            null pointer, memory leak, segmentation fault, web server, rest endpoint, endpoint, database query,
            recursion, recursive, iterator, coding assistant, programming assistant"""),
        listed("""
            program, programs, function, functions, script, scripts, developer, programmer, shell, query,
            database, print, strings, library, exception, loop, parameter, parameters, variable, variables,
            command, website, web page"""),
    ),
    WordList(
        Topic.MATH,
        "en",
        listed("""
            math, maths, mathematics, mathematical, calculate, calculation, calculations, compute, equation,
            equations, solve, integral, integrals, derivative, derivatives, polynomial, theorem, prove,
            probability, algebra, algebraic, geometry, arithmetic, calculus, square root, remainder, modulo,
            factorial, logarithm, standard deviation, inequality, vertices, divisible, divided by, multiplied by,
            integer, integers, prime number, prime numbers, find the value, how many, how much, how far, how fast,
            how long does it take, how long will it take, how long would it take, twice as, times as many,
            times as much, miles per hour, kilometers per hour, kilometres per hour, eigenvalue, eigenvalues,
            determinant, hypotenuse, perimeter, circumference, permutations, permutation, combinatorics,
            quadratic, simplify, factorize, factorise, evaluate the expression, altogether, word problem, find x,
            solve for"""),
        listed("""
            proof, percent, percentage, sum, total, in total, average, fraction, triangle, rectangle, circle,
            area, volume, radius, matrix, vector, value of, ratio, equal, equals, double, half, number of,
            numbers, per hour, per day, per week, per month, probabilities, compound, interest, multiply,
            subtract, divide, maximum, minimum, median, odds, digits, how old"""),
    ),
    WordList(
        Topic.REASONING,
        "en",
        listed("""
            step by step, show your work, show your reasoning, think carefully, chain of thought, reasoning,
            deduce, deduction, logic, logical, logically, puzzle, riddle, infer, inference, syllogism,
            true or false, which of the following, multiple choice, premise, premises, which one does not,
            odd one out, next number, who is lying, tells the truth, necessarily true, does it follow,
            can we conclude, follows that, brain teaser, fallacy, contradiction, counterexample"""),
        listed("""
            therefore, conclude, conclusion, statement, statements, belongs, who is, determine, reason, reasons,
            relationship between, explain why, sequence, which, belong, taller than, older than, younger than,
            answer the question, answer the questions"""),
    ),
    WordList(
        Topic.DATA,
        "en",
        listed("""
            structured output, structured data, extract, extracts, extracting, extraction, named entity,
            named entities, entities, entity, parse, parsing, classify, classification, categorize, categorise,
            key value, tabular, following format, output format, format your, return only, return the,
            respond only, only output, answer only, answer with only, answer with one, comma separated, one word,
            single word, one of the following, on a scale, scale of, spam or, positive or negative,
            positive negative, grammatical errors, grammar mistakes, grammar errors, part of speech,
            parts of speech, annotate, annotation, find all, list all, pick out, pull out, iso 8601"""),
        listed("""
            table, label, labels, field, fields, identify, count, dictionary, sentiment, evaluate, rate, rating,
            assess, column, columns, row, rows, arrange, format, formatted, analyze, analyse, given the following,
            sort, detect, mentioned, category, categories, correct, match, record, records"""),
    ),
    WordList(
        Topic.CREATIVE,
        "en",
        listed("""
            poem, poems, poetry, poetic, sonnet, rhyme, rhymes, rhyming, lyrics, song, songs, ballad, lullaby,
            story, stories, tale, tales, fairy tale, fiction, fictional, fable, screenplay, narrative, dialogue,
            monologue, creative, creatively, creativity, imaginative, imagination, brainstorm, slogan, slogans,
            tagline, catchy, blog post, essay, persuasive, vivid, captivating, engaging, intriguing, joke, jokes,
            pun, puns, funny, funniest, humor, humour, humorous, witty, whimsical, roleplay, roleplaying,
            role play, pretend, persona, in character, the style of, role of a, take on the role, assume the role,
            embrace the role, play the role, play a, picture yourself, imagine yourself, yourself as, now you are,
            you are now, short story, fantasy, compose, novelist, poet, playwright, storyteller, screenwriter,
            act as, act like, opening line, opening lines, opening scene, wedding toast, love letter,
            cover letter, greeting card, villain, protagonist, superhero, plot twist, bedtime"""),
        listed("""
            imagine, character, characters, plot, novel, draft, letter, email, speech, invent, paragraph, style,
            announcement, write about, scene, epic, romantic, suggestions, ideas, embody, metaphor, metaphors,
            caption, toast, tone, make up, describe a, rewrite, invitation"""),
    ),
    WordList(
        Topic.CONVERSATION,
        "en",
        listed("""
            how are you, how s it going, what s up, good morning, good evening, good night, chatting,
            chat with me, conversational, casual, friendly, companion, talk to me, about yourself, do you think,
            do you like, do you prefer, would you rather, your opinion, your favorite, your favourite, small talk,
            cheer me up, chit chat, empathetic, best friend, i feel, i m feeling, i m bored, i m so, i m sad,
            gossip, cozy, rough day, long day, broke up, lonely"""),
        listed("""
            thanks, thank you, chat, conversation, favorite, favourite, feeling, advice, recommend, fun, friend,
            weekend, tell me, talk, bored, should i, any tips"""),
    ),
    WordList(
        Topic.DIGEST,
        "en",
        listed("""
            summarize, summarise, summary, summarizing, summarising, paraphrase, gist, recap, proofread,
            translate the following, translate this sentence, translate this text, into english, into french,
            into german, into spanish, into chinese, into japanese, key takeaways"""),
    ),
    WordList(
        Topic.NEGATION,
        "en",
        listed("""
            without, avoid, instead of, rather than, never, do not write, don t write, do not use, don t use,
            do not give, don t give, do not include, don t include, do not show, don t show, do not add,
            don t add, do not output, don t output, do not return, don t return, do not want, don t want,
            do not need, don t need, do not make, don t make, do not answer, don t answer, do not respond,
            don t respond, do not put, don t put, do not create, don t create, do not generate, don t generate,
            do not provide, don t provide, do not explain, don t explain, no need for, no need to, not asking for,
            not looking for"""),
        listed("no, not, don t, isn t, aren t"),
    ),
)
