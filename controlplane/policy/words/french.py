"""French words. Data only."""

from __future__ import annotations

from controlplane.policy.words.lists import Topic, WordList, without_accents

LISTS: tuple[WordList, ...] = (
    WordList(
        Topic.CODE,
        "fr",
        without_accents("""
            code source, programmation, programmer, programmeur, implémente, implémenter, implémentation,
            algorithme, algorithmes, débogue, déboguer, débugger, compile, compiler, compilateur, refactorise,
            refactoriser, expression régulière, expressions régulières, base de données, bases de données,
            une fonction, fonction qui, un programme, programme qui, un script, script qui, une classe,
            requête sql, une requête, test unitaire, tests unitaires, structure de données, structures de données,
            liste chaînée, arbre binaire, recherche binaire, dichotomie, chaîne de caractères, récursif,
            récursive, récursivité, une boucle, ligne de commande, complexité, page web, site web, formulaire,
            serveur, exception, pseudo code, développeur, développeuse, ingénieur logiciel, message d erreur,
            feuille de style, code python, code java, fuite de mémoire, pointeur"""),
        without_accents("""
            fonction, fonctions, programme, requête, chaîne, script, classe, fichier, fichiers, dossier, variable,
            variables, paramètre, paramètres, bibliothèque, commande, erreur, bouton, boucle, tableau de"""),
    ),
    WordList(
        Topic.MATH,
        "fr",
        without_accents("""
            mathématiques, maths, mathématique, calcule, calculez, calculer, calcul, calculs, équation, équations,
            résous, résoudre, résolvez, intégrale, dérivée, dérivées, théorème, démontre, démontrer, démontrez,
            prouve que, prouver que, probabilité, probabilités, algèbre, géométrie, arithmétique, racine carrée,
            combien, combien de, combien de temps, à quelle vitesse, quelle distance, quel âge, polynôme,
            logarithme, matrice, déterminant, écart type, nombre premier, nombres premiers, divisible, diviseur,
            multiple de, reste de, factorise, factoriser, simplifie, simplifier, inéquation, triangle, rectangle,
            cercle, rayon, aire, périmètre, volume, système d équations, par heure, kilomètres, règle de trois,
            pour cent, pourcentage, permutations, combinaisons, valeur de x, au carré, au cube, limite de,
            fraction, vecteur, intérêts"""),
        without_accents("""
            somme, additionne, soustrais, multiplie, divise, moyenne, moitié, double, triple, tiers, quart, total,
            au total, nombre, nombres, vitesse, distance, médiane, maximum, minimum, euros, km, remise, restent"""),
    ),
    WordList(
        Topic.REASONING,
        "fr",
        without_accents("""
            étape par étape, pas à pas, raisonnement, raisonne, raisonner, logique, logiquement, déduis, déduire,
            déduction, en déduire, infère, énigme, devinette, casse tête, syllogisme, prémisse, prémisses,
            vrai ou faux, choix multiple, bonne réponse, lequel des, laquelle des, lesquels, peut on conclure,
            peut on dire, conclure que, on peut conclure, nombre suivant, suite logique, suite de nombres,
            qui ment, dit la vérité, menteur, contradiction, intrus, analogie, chaîne de pensée, détaille ton,
            détaille les étapes, montre ton raisonnement, problème de logique"""),
        without_accents("""
            justifie, conclusion, pourquoi, détermine, donc, affirmation, affirmations, certains, plus grand que,
            plus petit que, plus âgé"""),
    ),
    WordList(
        Topic.DATA,
        "fr",
        without_accents("""
            extrais, extraire, extrayez, extraction, relève, relever, repère, classe les, classe ces,
            classe cette, classe ce, classifie, classifier, classification, catégorise, catégoriser, structuré,
            structurée, structurées, structurés, entités, entité, format json, format suivant, au format,
            sous forme de, réponds uniquement, réponds seulement, réponds par, réponds avec, uniquement,
            renvoie seulement, renvoie uniquement, un mot, un seul mot, en tableau, un tableau, colonnes, colonne,
            séparés par des virgules, séparées par des virgules, positif ou négatif, positive ou négative,
            positif négatif, sentiment, étiquette, étiqueter, étiquettes, clé valeur, identifie, identifier,
            convertis, convertir, noms propres, fautes d orthographe, fautes de grammaire, fautes, liste tous,
            liste toutes, énumère"""),
        without_accents("""
            tableau, champs, champ, format, catégorie, catégories, corrige, liste de, dates, lignes, trie, trier,
            analyse, évalue, note de, données, transforme, mets en, remplis"""),
    ),
    WordList(
        Topic.CREATIVE,
        "fr",
        without_accents("""
            poème, poèmes, poésie, poétique, un vers, des vers, conte, contes, conte de fées, une histoire,
            histoire qui, récit, récits, une nouvelle, un roman, chanson, chansons, paroles, sonnet, rime, rimes,
            fiction, créatif, créative, créativité, blague, blagues, drôle, drôles, humour, humoristique, amusant,
            amusante, rigolo, un scénario, dialogue, monologue, slogan, fable, légende, imagine, imaginez,
            imagination, fais semblant, fais comme si, comme si tu étais, jeu de rôle, le rôle de, le rôle d,
            joue le rôle, incarne, mets toi dans la peau, dans la peau de, dans le style de, à la manière de,
            comporte toi comme, agis comme, lettre d amour, discours, un toast, carte de vœux, romantique,
            protagoniste, personnages, invente, inventer, invente moi, berceuse, métaphore, métaphores,
            texte publicitaire, accroche, article de blog, polar, suspense, jeu de mots, rédaction créative"""),
        without_accents("""
            histoire, essai, personnage, lettre, courriel, raconte, raconte moi, tu es maintenant, intrigue,
            scène, rédige, style, invitation, paragraphe, idées, magique, compose, chapitre"""),
    ),
    WordList(
        Topic.CONVERSATION,
        "fr",
        without_accents("""
            bonsoir, bonne nuit, comment ça va, ça va, comment vas tu, comment tu vas, quoi de neuf, tu fais quoi,
            bavarder, bavarde, papoter, papote, discutons, discuter, parle avec moi, qu en penses tu,
            tu en penses quoi, que penses tu, ton avis, tu préfères, préfères tu, tu aimes, aimes tu, ton préféré,
            ta préférée, je m ennuie, je suis triste, je me sens, je suis fatigué, je suis fatiguée,
            mauvaise journée, sale journée, dure journée, console moi, réconforte moi, mdr, haha, déprime"""),
        without_accents("""
            bonjour, salut, coucou, merci, conseil, conseils, recommande, préféré, parler, parle moi, week end,
            ami, amie, envie de, ennuie"""),
    ),
    WordList(
        Topic.DIGEST,
        "fr",
        without_accents("""
            résume, résumez, résumer, résumé, paraphrase, synthétise, synthèse, reformule, traduis en,
            traduire en, traduisez en, traduis cette phrase, traduis ce texte, points clés, idées principales"""),
    ),
    WordList(
        Topic.NEGATION,
        "fr",
        without_accents("""
            sans, jamais, évite, éviter, au lieu de, plutôt que, pas de, pas d, n écris pas, n utilise pas,
            ne donne pas, ne mets pas, n ajoute pas, ne génère pas, ne réponds pas, ne veux pas, pas besoin"""),
        without_accents("pas, aucun, aucune, ni"),
    ),
)
