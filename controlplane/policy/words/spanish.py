"""Spanish words. Data only."""

from __future__ import annotations

from controlplane.policy.words.lists import Topic, WordList, without_accents

LISTS: tuple[WordList, ...] = (
    WordList(
        Topic.CODE,
        "es",
        without_accents("""
            código, códigos, código fuente, programación, programar, programador, implementa, implementar,
            implementación, algoritmo, algoritmos, depura, depurar, compila, compilar, compilador, refactoriza,
            refactorizar, expresión regular, expresiones regulares, base de datos, bases de datos,
            prueba unitaria, pruebas unitarias, una función, función que, un programa, programa que, un script,
            script que, una clase, una consulta sql, consulta sql, estructura de datos, estructuras de datos,
            lista enlazada, árbol binario, búsqueda binaria, cadena de texto, recursiva, recursivo, recursión,
            bucle, línea de comandos, complejidad temporal, página web, sitio web, formulario web, servidor,
            excepción, pseudocódigo, desarrollador, ingeniero de software, me da error, mensaje de error,
            hoja de estilos, raspado web, hilo de ejecución"""),
        without_accents("""
            función, funciones, programa, consulta, cadena, script, clase, archivo, archivos, fichero, ficheros,
            carpeta, variable, variables, parámetro, parámetros, librería, biblioteca, comando, error, botón,
            ordenación, ordenamiento"""),
    ),
    WordList(
        Topic.MATH,
        "es",
        without_accents("""
            matemáticas, matemática, matemático, calcula, calcular, calcule, cálculo, cálculos, ecuación,
            ecuaciones, resuelve, resolver, resuelva, integral, derivada, derivadas, teorema, demuestra,
            demostrar, demuestre, probabilidad, álgebra, geometría, aritmética, raíz cuadrada, raíces, cuántos,
            cuántas, cuánto, cuánta, cuánto tarda, a qué velocidad, qué velocidad, qué distancia, polinomio,
            logaritmo, matriz, determinante, desviación estándar, desviación típica, número primo, números primos,
            divisible, divisor, múltiplo, resto de, factoriza, factorizar, simplifica, simplificar, desigualdad,
            triángulo, rectángulo, circunferencia, radio de, área, perímetro, volumen, sistema de ecuaciones,
            por hora, kilómetros, regla de tres, por ciento, tanto por ciento, permutaciones, combinaciones,
            valor de x, al cuadrado, al cubo, despeja"""),
        without_accents("""
            suma, sumar, resta, multiplica, divide, promedio, porcentaje, mitad, doble, triple, tercio, total,
            número, números, velocidad, distancia, mediana, máximo, mínimo, edad, euros, pesos, dólares, km,
            descuento, interés"""),
    ),
    WordList(
        Topic.REASONING,
        "es",
        without_accents("""
            paso a paso, paso por paso, razonamiento, razona, razónalo, razonar, lógica, lógico, lógicamente,
            deduce, deducir, deducción, infiere, inferir, acertijo, adivinanza, rompecabezas, silogismo, premisa,
            premisas, verdadero o falso, opción múltiple, opción correcta, respuesta correcta,
            cuál de las siguientes, cuál de los siguientes, se puede concluir, podemos concluir, se deduce,
            se sigue que, siguiente número, serie numérica, serie de números, la secuencia, el patrón,
            quién miente, dice la verdad, mentiroso, contradicción, no pertenece, analogía, cadena de pensamiento,
            muestra tu razonamiento, problema de lógica"""),
        without_accents("""
            justifica, conclusión, concluir, por qué, determina, por lo tanto, afirmación, algunos, ninguno, cuál,
            quién"""),
    ),
    WordList(
        Topic.DATA,
        "es",
        without_accents("""
            extrae, extraer, extraiga, extracción, clasifica, clasificar, clasifique, clasificación, categoriza,
            categorizar, analiza sintácticamente, estructurado, estructurada, estructurados, entidades, entidad,
            formato json, siguiente formato, el formato, en formato, devuelve solo, devuelve únicamente,
            responde solo, responde únicamente, responde con, contesta solo, únicamente, una palabra,
            una sola palabra, en una tabla, tabla con, columnas, columna, separados por comas,
            separadas por comas, positivo o negativo, positiva o negativa, positiva negativa, positivo negativo,
            sentimiento, etiqueta, etiquetar, etiquetas, pares clave, identifica, identificar, convierte,
            convertir, nombres propios, faltas de ortografía, errores ortográficos, errores gramaticales,
            lista todos, lista todas, enumera"""),
        without_accents("""
            tabla, campos, campo, formato, categoría, categorías, corrige, lista de, fechas, filas, ordena,
            ordenar, analiza, evalúa, puntúa, datos, rellena, cuenta cuántas"""),
    ),
    WordList(
        Topic.CREATIVE,
        "es",
        without_accents("""
            poema, poemas, poesía, poético, verso, versos, cuento, cuentos, una historia, historia sobre,
            historias, relato, relatos, novela, canción, canciones, la letra de, soneto, rima, rimas, ficción,
            creativo, creativa, creatividad, chiste, chistes, broma, bromas, humor, humorístico, gracioso,
            graciosa, divertido, divertida, guion, guión, diálogo, monólogo, eslogan, lema, ensayo, fábula,
            fantasía, leyenda, imagina, imagínate, imaginación, finge, fingir, juego de rol, el papel de,
            papel de, hazte pasar, haz de, haz como si, como si fueras, ponte en la piel, al estilo de,
            actúa como, actúa de, compórtate como, interpreta a, interpreta el papel, carta de amor, discurso,
            brindis, felicitación, romántico, romántica, protagonista, personajes, inventa, invéntate, inventar,
            invéntame, copla, redacción creativa, texto publicitario, metáfora, metáforas, villancico,
            entrada de blog"""),
        without_accents("""
            historia, personaje, carta, correo, letra, trama, escena, ahora eres, redacta, tono, estilo,
            publicación, invitación, párrafo, ideas, mágico, mágica"""),
    ),
    WordList(
        Topic.CONVERSATION,
        "es",
        without_accents("""
            cómo estás, cómo te va, qué tal, qué haces, qué onda, buenos días, buenas tardes, buenas noches,
            charlar, charlemos, charla conmigo, platicar, platiquemos, conversar, conversemos, habla conmigo,
            hablar un rato, qué opinas, qué piensas, qué te parece, tu opinión, tú qué, qué prefieres, prefieres,
            te gusta, te gustan, tu favorito, tu favorita, aburrido, aburrida, me aburro, triste, me siento,
            estoy cansado, estoy cansada, un mal día, desahogarme, anímame, consuélame, jaja, jajaja, amigo mío"""),
        without_accents("""
            hola, gracias, consejo, consejos, recomienda, recomiéndame, recomiendas, favorito, favorita, cuéntame,
            hablar, háblame, fin de semana, amigo, amiga, charla"""),
    ),
    WordList(
        Topic.DIGEST,
        "es",
        without_accents("""
            resume, resumir, resumen, resúmeme, resuma, parafrasea, parafrasear, sintetiza, sintetizar,
            traduce al, traducir al, traduzca al, traduce esta frase, traduce este texto, ideas principales,
            puntos clave"""),
    ),
    WordList(
        Topic.NEGATION,
        "es",
        without_accents("""
            sin, nunca, evita, evitar, en vez de, en lugar de, no escribas, no uses, no utilices, no quiero,
            no necesito, no incluyas, no des, no me des, no pongas, no generes, no hagas, no muestres, no añadas,
            no respondas con, nada de"""),
        without_accents("ni, ningún, ninguna, no"),
    ),
)
