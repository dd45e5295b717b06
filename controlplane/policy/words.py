"""The default word lists of the sensitivity rules, by topic and language.

Data only; `classify` says how words count. A word is matched whole and without regard to case; a phrase is words with
one blank between them (hyphens and apostrophes in requests read as blanks). Chinese and Japanese have no blanks: there
a word is matched wherever it occurs, so that one-character words are left out. `weak` words count half: they often
occur in other tasks too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Topic(StrEnum):
    """What a word tells about the task."""

    CODE = "code"
    MATH = "math"
    REASONING = "reasoning"
    DATA = "data"  # extraction, conversion and labelling, where the form of the answer is given
    CREATIVE = "creative"
    CONVERSATION = "conversation"
    DIGEST = "digest"  # summarising: what is named after it is material, not the task
    NEGATION = "negation"  # what is named after it is not wanted


@dataclass(frozen=True, slots=True)
class WordList:
    """Words of one topic in one language (a BCP 47 tag, for people)."""

    topic: Topic
    language: str
    words: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.replace("\n", " ").split(",") if word.strip())


WORDS_VERSION = "2026-12-01"

DEFAULT_WORDS: tuple[WordList, ...] = (
    # --- English ---
    WordList(
        Topic.CODE,
        "en",
        _words("""
            code, coding, codebase, programming, pseudocode, implement, implementation, algorithm, python,
            javascript, typescript, java, kotlin, c++, c#, golang, php, sql, html, css, bash, regex, regexp,
            regular expression, api, compile, compiler, debug, debugging, refactor, unit test, unit tests,
            pytest, stack trace, traceback, syntax, def, elif, struct, async, stdin, stdout, printf, println,
            #include, linked list, binary tree, binary search, dynamic programming, dockerfile, pull request,
            software engineer, data structure, data structures, time complexity, command line, c program,
            a program, program that, a function, function that, function to"""),
        _words("""
            program, function, script, developer, programmer, rust, ruby, shell, query, database, git, docker,
            kubernetes, import, return, print, null, var, const, lambda, array, string, strings, bug, library"""),
    ),
    WordList(
        Topic.MATH,
        "en",
        _words("""
            math, maths, mathematics, mathematical, calculate, calculation, calculations, compute, equation,
            equations, solve, integral, derivative, polynomial, theorem, prove, probability, algebra, algebraic,
            geometry, arithmetic, calculus, square root, remainder, modulo, factorial, logarithm,
            standard deviation, inequality, vertices, divisible, divided by, integer, integers, prime number,
            prime numbers, find the value, how many, how much, twice as, f x"""),
        _words("""
            proof, percent, percentage, sum, total, average, fraction, triangle, circle, area, matrix, value of,
            ratio, equal, equals, double, half, number of, per hour, per day, probabilities, compound, interest"""),
    ),
    WordList(
        Topic.REASONING,
        "en",
        _words("""
            step by step, show your work, chain of thought, reasoning, deduce, deduction, logic, logical,
            logically, puzzle, riddle, infer, syllogism, true or false, which of the following, multiple choice,
            premise, premises, which one does not, odd one out"""),
        _words("""
            therefore, conclude, conclusion, statement, statements, belongs, who is, determine, reason, reasons,
            relationship between, explain why, sequence, which, belong,
            answer the question, answer the questions"""),
    ),
    WordList(
        Topic.DATA,
        "en",
        _words("""
            json, jsonl, xml, yaml, csv, toml, schema, structured output, structured data, extract, extracting,
            extraction, named entity, named entities, entities, parse, parsing, classify, classification,
            key value, tabular, markdown table, following format, output format, format your, return only,
            respond only, only output, answer only, comma separated, one word, single word, on a scale, scale of"""),
        _words("""
            table, label, labels, fields, identify, list all, count, dictionary, sentiment, evaluate, rate,
            rating, assess, column, columns, rows, arrange, format, analyze, analyse, given the following"""),
    ),
    WordList(
        Topic.CREATIVE,
        "en",
        _words("""
            grammatical errors, grammar mistakes,
            poem, poems, poetry, poetic, haiku, limerick, sonnet, rhyme, rhymes, lyrics, song, songs, ballad,
            story, stories, tale, tales, fiction, fictional, fable, screenplay, narrative, dialogue, monologue,
            creative, creatively, creativity, imaginative, imagination, brainstorm, slogan, tagline, catchy,
            blog, blog post, essay, persuasive, vivid, captivating, engaging, intriguing, joke, jokes, funny,
            humor, humour, humorous, witty, whimsical, roleplay, roleplaying, role play, pretend, persona,
            in character, the style of, role of a, take on the role, assume the role, embrace the role,
            play the role, picture yourself, imagine yourself, yourself as, now you are, short story, fantasy,
            compose, novelist, poet, playwright, storyteller, screenwriter, act as"""),
        _words("""
            imagine, character, characters, plot, novel, draft, letter, email, speech, invent, paragraph, style,
            announcement, write about, scene, epic, romantic, suggestions, ideas, embody, metaphor, metaphors"""),
    ),
    WordList(
        Topic.CONVERSATION,
        "en",
        _words("""
            hi, hello, hey, thanks, how are you, good morning, good evening, chatting, conversational, casual,
            friendly, companion, talk to me, about yourself, do you think, your opinion, small talk,
            cheer me up, chit chat, empathetic, best friend, i feel, i m feeling, gossip"""),
        _words("""
            chat, conversation, favorite, favourite, feeling, advice, recommend, fun, friend, weekend, tell me,
            talk"""),
    ),
    WordList(
        Topic.DIGEST,
        "en",
        _words("""
            summarize, summarise, summary, summarizing, summarising, paraphrase, tldr, tl dr, gist, recap,
            proofread"""),
    ),
    WordList(Topic.NEGATION, "en", _words("no, not, without, don t, never, avoid, instead of, rather than")),
    # --- Chinese ---
    WordList(
        Topic.CODE,
        "zh",
        _words("""
            代码, 代碼, 程序, 程式, 编程, 編程, 函数, 函數, 算法, 演算法, 脚本, 腳本, 调试, 調試, 编译, 編譯,
            正则表达式, 数据库, 資料庫, 单元测试, 数据结构, 重构, 报错, 接口"""),
    ),
    WordList(
        Topic.MATH,
        "zh",
        _words("""
            数学, 數學, 计算, 計算, 方程, 求解, 解方程, 证明, 證明, 概率, 机率, 积分, 导数, 几何, 代数, 定理,
            多少, 平方根, 余数, 百分之, 求值"""),
        _words("一共, 总共, 平均, 几个, 分数"),
    ),
    WordList(
        Topic.REASONING,
        "zh",
        _words("""
            一步一步, 一步步, 逐步, 推理, 逻辑, 邏輯, 推断, 推导, 谜题, 谜语, 是否正确, 选择题, 判断题"""),
        _words("判断, 因此, 为什么"),
    ),
    WordList(
        Topic.DATA,
        "zh",
        _words("""
            提取, 抽取, 解析, 分类, 分類, 结构化, 結構化, 字段, 表格, 以下格式, 格式输出, 实体, 实体识别, 标注,
            只输出, 仅输出"""),
        _words("列出, 识别, 格式"),
    ),
    WordList(
        Topic.CREATIVE,
        "zh",
        _words("""
            诗, 詩, 诗歌, 故事, 小说, 小說, 散文, 歌词, 歌詞, 创意, 創意, 创作, 剧本, 劇本, 童话, 童話, 笑话,
            笑話, 幽默, 角色扮演, 扮演, 假装, 广告语, 文案, 口号, 想象, 对白, 情书, 作文, 博客"""),
        _words("写一篇, 寫一篇, 有趣, 风格, 角色"),
    ),
    WordList(
        Topic.CONVERSATION,
        "zh",
        _words("你好, 您好, 聊天, 聊聊, 闲聊, 谢谢, 謝謝, 早上好, 晚上好, 你觉得, 你覺得, 陪我, 心情"),
        _words("推荐, 建议, 喜欢"),
    ),
    WordList(Topic.DIGEST, "zh", _words("总结, 總結, 摘要, 概括, 概述, 归纳, 改述, 润色")),
    WordList(Topic.NEGATION, "zh", _words("不要, 不用, 不需要, 无需, 無需, 没有, 不是, 别写, 避免")),
    # --- Japanese ---
    WordList(
        Topic.CODE,
        "ja",
        _words("""
            コード, プログラム, プログラミング, 関数, アルゴリズム, スクリプト, デバッグ, コンパイル, 実装,
            正規表現, データベース, データ構造, リファクタリング, 単体テスト, エラーメッセージ"""),
    ),
    WordList(
        Topic.MATH,
        "ja",
        _words("""
            計算, 数学, 方程式, 解いて, 解け, 証明, 確率, 積分, 微分, 幾何, 定理, 求めよ, 求めて, 平方根,
            いくつ, いくら, 何個, 何人"""),
        _words("合計, 平均, 割合"),
    ),
    WordList(
        Topic.REASONING,
        "ja",
        _words("""
            段階的に, ステップバイステップ, 順を追って, 推論, 論理, なぞなぞ, パズル, 正しいもの, 正しいか, 推理"""),
        _words("判断, なぜ"),
    ),
    WordList(
        Topic.DATA,
        "ja",
        _words("""
            抽出, 解析, 分類, 構造化, 以下の形式, 次の形式, 形式で出力, 固有表現, 項目, 表形式, のみを出力,
            だけを出力, ラベル"""),
        _words("一覧, 形式"),
    ),
    WordList(
        Topic.CREATIVE,
        "ja",
        _words("""
            ポエム, 俳句, 短歌, 物語, 小説, 歌詞, 創作, シナリオ, 童話, 冗談, ジョーク, ユーモア, ロールプレイ,
            になりきって, キャッチコピー, スローガン, エッセイ, ブログ, お話, 想像, セリフ, ラブレター, 昔話"""),
        _words("面白い, 風に, キャラクター"),
    ),
    WordList(
        Topic.CONVERSATION,
        "ja",
        _words("""
            こんにちは, こんばんは, おはよう, ありがとう, 雑談, おしゃべり, 話そう, 話し相手, どう思う, 気分"""),
        _words("おすすめ, アドバイス, 好きな"),
    ),
    WordList(Topic.DIGEST, "ja", _words("要約, まとめて, 言い換え, 校正")),
    WordList(Topic.NEGATION, "ja", _words("なしで, ではなく, じゃなく, 使わず, 書かない, 不要")),
    # --- Spanish ---
    WordList(
        Topic.CODE,
        "es",
        _words("""
            código, codigo, programación, programacion, implementa, implementar, algoritmo, depura, depurar,
            compilar, expresión regular, base de datos, prueba unitaria, pruebas unitarias, una función,
            una funcion, un programa, estructura de datos"""),
        _words("función, funcion, programa, consulta, cadena, lista enlazada"),
    ),
    WordList(
        Topic.MATH,
        "es",
        _words("""
            matemáticas, matematicas, matemático, calcula, calcular, cálculo, ecuación, ecuacion, ecuaciones,
            resuelve, resolver, integral, derivada, teorema, demuestra, demostrar, probabilidad, álgebra,
            geometría, raíz cuadrada, cuántos, cuántas, cuantos, cuantas, cuánto, cuanto cuesta"""),
        _words("suma, promedio, porcentaje, mitad, doble"),
    ),
    WordList(
        Topic.REASONING,
        "es",
        _words("""
            paso a paso, razonamiento, razona, lógica, deduce, deducir, acertijo, verdadero o falso,
            opción múltiple"""),
        _words("justifica, conclusión, por qué, determina"),
    ),
    WordList(
        Topic.DATA,
        "es",
        _words("""
            extrae, extraer, extracción, clasifica, clasificar, analiza sintácticamente, estructurado,
            entidades, formato json, siguiente formato, devuelve solo, responde solo, únicamente"""),
        _words("tabla, campos, identifica, etiqueta, formato"),
    ),
    WordList(
        Topic.CREATIVE,
        "es",
        _words("""
            poema, poemas, poesía, poesia, cuento, cuentos, una historia, relato, novela, canción, cancion,
            letra, soneto, rima, ficción, creativo, creativa, creatividad, chiste, chistes, humor, guion, guión,
            diálogo, monólogo, eslogan, ensayo, fábula, fantasía, imagina, finge, juego de rol, el papel de,
            al estilo de, actúa como, carta de amor"""),
        _words("historia, personaje, carta, correo, blog, inventa, divertido"),
    ),
    WordList(
        Topic.CONVERSATION,
        "es",
        _words("""
            hola, gracias, buenos días, buenas tardes, cómo estás, como estas, charlar, charlemos, qué opinas,
            qué piensas"""),
        _words("consejo, recomienda, favorito, cuéntame, hablar"),
    ),
    WordList(Topic.DIGEST, "es", _words("resume, resumir, resumen, parafrasea, sintetiza")),
    WordList(Topic.NEGATION, "es", _words("sin, nunca, evita, en vez de, en lugar de")),
    # --- German ---
    WordList(
        Topic.CODE,
        "de",
        _words("""
            quellcode, programmiere, programmieren, programmierung, implementiere, implementieren, algorithmus,
            eine funktion, ein programm, ein skript, debugge, debuggen, kompilieren, regulärer ausdruck,
            regulären ausdruck, datenbank, datenstruktur, unittest, refaktorisiere"""),
        _words("funktion, programm, skript, abfrage, fehlermeldung"),
    ),
    WordList(
        Topic.MATH,
        "de",
        _words("""
            mathematik, mathe, mathematisch, berechne, berechnen, berechnung, gleichung, gleichungen, löse,
            lösen, integral, ableitung, theorem, beweise, beweis, wahrscheinlichkeit, algebra, geometrie,
            quadratwurzel, wie viele, wie viel, wieviel, rechne"""),
        _words("summe, durchschnitt, prozent, hälfte, doppelt, insgesamt"),
    ),
    WordList(
        Topic.REASONING,
        "de",
        _words("""
            schritt für schritt, schrittweise, logik, logisch, schlussfolgere, schlussfolgerung, rätsel,
            wahr oder falsch"""),
        _words("begründe, folgere, warum, bestimme"),
    ),
    WordList(
        Topic.DATA,
        "de",
        _words("""
            extrahiere, extrahieren, klassifiziere, klassifizieren, strukturiert, strukturierte, entitäten,
            folgendem format, folgenden format, gib nur, antworte nur, ausschließlich, im json format"""),
        _words("tabelle, felder, identifiziere, kategorie, format, liste"),
    ),
    WordList(
        Topic.CREATIVE,
        "de",
        _words("""
            gedicht, gedichte, eine geschichte, geschichten, kurzgeschichte, erzählung, märchen, ein lied,
            liedtext, sonett, reim, fiktion, kreativ, kreative, kreativer, witz, witze, lustig, humorvoll,
            drehbuch, dialog, monolog, slogan, werbespruch, aufsatz, fabel, stell dir vor, rollenspiel,
            die rolle, im stil von, tu so, liebesbrief, blogbeitrag"""),
        _words("geschichte, figur, brief, mail, erfinde, fantasie, erzähl"),
    ),
    WordList(
        Topic.CONVERSATION,
        "de",
        _words("""
            hallo, danke, guten morgen, guten abend, wie geht s, wie geht es dir, plaudern, was denkst du,
            deine meinung"""),
        _words("rat, empfiehl, lieblings, erzähl mir, unterhalten"),
    ),
    WordList(Topic.DIGEST, "de", _words("fasse, zusammenfassen, zusammenfassung, paraphrasiere, umformulieren")),
    WordList(Topic.NEGATION, "de", _words("kein, keine, keinen, nicht, ohne, niemals, anstatt, statt")),
    # --- French ---
    WordList(
        Topic.CODE,
        "fr",
        _words("""
            code source, programmation, programmer, implémente, implémenter, algorithme, débogue, déboguer,
            compiler, expression régulière, base de données, une fonction, un programme, un script,
            test unitaire, tests unitaires, structure de données"""),
        _words("fonction, programme, requête, chaîne"),
    ),
    WordList(
        Topic.MATH,
        "fr",
        _words("""
            mathématiques, maths, mathématique, calcule, calculez, calculer, calcul, équation, équations,
            résous, résoudre, résolvez, intégrale, dérivée, théorème, démontre, démontrer, démontrez,
            probabilité, algèbre, géométrie, racine carrée, combien"""),
        _words("somme, moyenne, pourcentage, moitié, double"),
    ),
    WordList(
        Topic.REASONING,
        "fr",
        _words("""
            étape par étape, pas à pas, raisonnement, raisonne, logique, déduis, déduire, énigme, vrai ou faux"""),
        _words("justifie, conclusion, pourquoi, détermine"),
    ),
    WordList(
        Topic.DATA,
        "fr",
        _words("""
            extrais, extraire, extrayez, extraction, classe les, classifie, classifier, structuré, structurées,
            entités, format json, format suivant, réponds uniquement, uniquement, renvoie seulement"""),
        _words("tableau, champs, identifie, étiquette, format"),
    ),
    WordList(
        Topic.CREATIVE,
        "fr",
        _words("""
            poème, poèmes, poésie, conte, une histoire, récit, une nouvelle, chanson, paroles, sonnet, rime,
            fiction, créatif, créative, créativité, blague, blagues, drôle, humour, scénario, dialogue,
            monologue, slogan, fable, imagine, fais semblant, jeu de rôle, le rôle de, dans le style de,
            lettre d amour"""),
        _words("histoire, essai, personnage, lettre, courriel, blog, invente, raconte"),
    ),
    WordList(
        Topic.CONVERSATION,
        "fr",
        _words("""
            bonjour, salut, bonsoir, merci, comment ça va, comment vas tu, bavarder, discutons, qu en penses tu,
            ton avis"""),
        _words("conseil, recommande, préféré, parler"),
    ),
    WordList(Topic.DIGEST, "fr", _words("résume, résumez, résumer, résumé, paraphrase, synthétise")),
    WordList(Topic.NEGATION, "fr", _words("sans, pas, jamais, aucun, aucune, évite, au lieu de, plutôt que")),
)
