"""German words. Data only."""

from __future__ import annotations

from controlplane.policy.words.lists import Topic, WordList, without_umlauts

LISTS: tuple[WordList, ...] = (
    WordList(
        Topic.CODE,
        "de",
        without_umlauts("""
            quellcode, quelltext, programmcode, programmiere, programmieren, programmierung, programmierer,
            implementiere, implementieren, implementierung, algorithmus, algorithmen, eine funktion, funktion die,
            ein programm, programm das, ein skript, skript das, python skript, debugge, debuggen, kompilieren,
            kompiliere, compiler, regulärer ausdruck, regulären ausdruck, reguläre ausdrücke, datenbank,
            datenbanken, datenbankabfrage, sql abfrage, datenstruktur, datenstrukturen, unittest, unittests,
            refaktorisiere, refaktorisieren, verkettete liste, binärbaum, binäre suche, rekursion, rekursiv,
            rekursive, schleife, kommandozeile, laufzeit, zeitkomplexität, webseite, website, softwareentwickler,
            entwickler, fehlermeldung, ausnahme, nullzeiger, speicherleck, thread, pseudocode, java code,
            python code, bash skript, shell skript, sortieralgorithmus, zeichenkette, schnittstelle, stylesheet"""),
        without_umlauts("""
            funktion, funktionen, programm, skript, script, abfrage, klasse, methode, variable, variablen,
            parameter, bibliothek, befehl, datei, dateien, ordner, code, fehler, knopf, server"""),
    ),
    WordList(
        Topic.MATH,
        "de",
        without_umlauts("""
            mathematik, mathe, mathematisch, mathematische, mathematisches, matheaufgabe, textaufgabe, berechne,
            berechnen, berechnung, rechne, rechnen, ausrechnen, gleichung, gleichungen, gleichungssystem, löse,
            lösen, integral, ableitung, leite ab, theorem, beweise, beweisen, beweis, wahrscheinlichkeit, algebra,
            geometrie, quadratwurzel, wurzel, wie viele, wie viel, wieviel, wieviele, wie lange, wie schnell,
            wie weit, wie groß ist, wie hoch ist, wie alt, polynom, logarithmus, matrix, determinante,
            standardabweichung, primzahl, primzahlen, teilbar, teiler, vielfaches, rest bei, faktorisiere,
            vereinfache, ungleichung, dreieck, rechteck, kreis, radius, flächeninhalt, fläche, umfang, volumen,
            pro stunde, stundenkilometer, dreisatz, prozent, prozentsatz, zinsen, zinssatz, permutationen,
            nullstellen, nullstelle, extremwerte, grenzwert, bruch, brüche, zum quadrat, hoch zwei, kurve, vektor,
            würfel"""),
        without_umlauts("""
            summe, durchschnitt, durchschnittlich, hälfte, doppelt, dreifach, drittel, viertel, insgesamt,
            zusammen, zahl, zahlen, geschwindigkeit, strecke, km, euro, addiere, subtrahiere, multipliziere,
            dividiere, maximum, minimum, rabatt, übrig, mittelwert, median"""),
    ),
    WordList(
        Topic.REASONING,
        "de",
        without_umlauts("""
            schritt für schritt, schrittweise, logik, logisch, logische, logikrätsel, schlussfolgere,
            schlussfolgerung, schlussfolgern, schließen, rätsel, denkaufgabe, knobelaufgabe, wahr oder falsch,
            richtig oder falsch, folgt daraus, daraus folgern, prämisse, prämissen, syllogismus,
            welche der folgenden, welcher der folgenden, welches der folgenden, richtige antwort, multiple choice,
            wer lügt, die wahrheit, lügner, widerspruch, passt nicht, gehört nicht, nächste zahl, zahlenfolge,
            zahlenreihe, analogie, gedankengang, denkprozess, rechenweg, lösungsweg"""),
        without_umlauts("""
            begründe, begründung, folgere, folgt, warum, bestimme, manche, welche, älter als, jünger als,
            größer als, kleiner als, aussage, aussagen, reihenfolge, erkläre warum"""),
    ),
    WordList(
        Topic.DATA,
        "de",
        without_umlauts("""
            extrahiere, extrahieren, extraktion, klassifiziere, klassifizieren, klassifikation, kategorisiere,
            kategorisieren, ordne, strukturiert, strukturierte, strukturierten, entitäten, folgendem format,
            folgenden format, im format, gib nur, gib ausschließlich, antworte nur, antworte ausschließlich,
            antworte mit, ausschließlich, im json format, ein wort, einem wort, einzigen wort, tabellarisch,
            als tabelle, in eine tabelle, einer tabelle, spalten, spalte, kommagetrennt, durch komma getrennt,
            positiv oder negativ, positiv negativ, stimmung, etikett, etikettiere, labels, identifiziere,
            markiere, wandle, umwandeln, konvertiere, konvertieren, eigennamen, rechtschreibfehler,
            grammatikfehler, tippfehler, liste alle, nenne alle, finde alle, zähle alle, suche alle,
            schlüsselwörter"""),
        without_umlauts("""
            tabelle, felder, feld, kategorie, kategorien, format, liste, liste auf, korrigiere, sortiere,
            sortieren, analysiere, bewerte, zeilen, daten, datum, vorkommen, erkenne, zuordnen, ausgeben,
            auflisten, auf einer skala"""),
    ),
    WordList(
        Topic.CREATIVE,
        "de",
        without_umlauts("""
            gedicht, gedichte, poesie, poetisch, vers, verse, eine geschichte, geschichten, kurzgeschichte,
            gutenachtgeschichte, gute nacht geschichte, erzählung, märchen, einen brief, einen roman, ein lied,
            lied über, liedtext, songtext, sonett, reim, reime, gereimt, ballade, fiktion, kreativ, kreative,
            kreativer, kreatives, kreativität, witz, witze, lustig, lustige, lustiges, lustigen, witzig, witzige,
            witziges, witzigen, humorvoll, humorvolle, drehbuch, dialog, monolog, slogan, werbespruch, werbetext,
            aufsatz, essay, fabel, stell dir vor, rollenspiel, die rolle, schlüpfe, spiele, im stil von,
            im stile von, tu so, tue so, verhalte dich wie, benimm dich wie, liebesbrief, blogbeitrag,
            blogartikel, rede zum, rede zur, festrede, trinkspruch, grußkarte, glückwunsch, krimi, novelle,
            fantasy, fantasievoll, phantasievoll, protagonist, hauptfigur, bösewicht, denk dir, ausdenken,
            erfinde, erfinden, metapher, metaphern, spannend, spannende, romantisch, romantische, schlaflied,
            wortspiel"""),
        without_umlauts("""
            geschichte, geschichte über, figur, charakter, mail, fantasie, erzähl, erzähle, du bist jetzt, szene,
            handlung, absatz, stil, formuliere, einladung, ideen, originell, beschreibe, rede, kapitel"""),
    ),
    WordList(
        Topic.CONVERSATION,
        "de",
        without_umlauts("""
            guten morgen, guten abend, gute nacht, wie geht s, wie gehts, wie geht es dir, wie läuft s,
            wie läufts, was machst du, na du, plaudern, plauder, quatschen, unterhalte dich, unterhalten wir,
            rede mit mir, sprich mit mir, was denkst du, was meinst du, was findest du, findest du, magst du,
            was magst du, was hältst du, deine meinung, dein lieblings, deine lieblings, langweilig,
            mir ist langweilig, traurig, einsam, muntere mich, aufmuntern, aufheitern, tröste mich,
            ich fühle mich, schlechten tag, harten tag, anstrengenden tag, gestresst, liebeskummer,
            würdest du lieber, haha"""),
        without_umlauts("""
            hallo, danke, tipps, einen rat, empfiehl, empfehlen, lieblings, erzähl mir, unterhalten, wochenende,
            freund, freundin, spaß, gefühl, reden"""),
    ),
    WordList(
        Topic.DIGEST,
        "de",
        without_umlauts("""
            fasse, fass, zusammenfassen, zusammenfassung, paraphrasiere, umformulieren, kernaussagen,
            stichpunktartig, korrekturlesen, ins englische, ins deutsche, ins französische, ins spanische"""),
    ),
    WordList(
        Topic.NEGATION,
        "de",
        without_umlauts("""
            ohne, niemals, anstatt, statt, vermeide, verzichte auf, kein, keine, keinen, keinerlei, schreib nicht,
            schreibe nicht, verwende nicht"""),
        without_umlauts("nicht, nie, weder"),
    ),
)
