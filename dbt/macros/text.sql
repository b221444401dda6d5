{# Text repair as SQL expressions. Every macro takes the name of a lambda parameter or column, so
   that the expression it stands for is evaluated once: use `clean_text` and `clean_texts`. #}

{# The 27 characters of Windows-1252 at the places where Latin-1 has control characters … #}
{% macro _cp1252_characters() -%}
'€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ'
{%- endmacro %}

{# … and those control characters, in the same order. #}
{% macro _c1_characters() -%}
{% for code in [128, 130, 131, 132, 133, 134, 135, 136, 137, 138, 139, 140, 142, 145, 146, 147, 148, 149, 150, 151, 152, 153, 154, 155, 156, 158, 159] -%}
chr({{ code }}){{ ' || ' if not loop.last }}
{%- endfor %}
{%- endmacro %}

{# Undo one round of double encoding: UTF-8 bytes that were read as Windows-1252 (or Latin-1) and
   encoded again ('CarrÃ\u00a0' -> 'Carrà', 'Oâ€™Hare' -> 'O’Hare').

   The text is mapped back to the bytes it was read from. Only if every character has such a byte
   and the bytes are valid UTF-8 is the result taken: then the repair is exact, and text that
   passes both conditions by accident does not occur in practice. One lost byte can be detected: where
   'Ã' or 'Â' stands at the end after a small letter or a space, it was followed by a no-break space
   (the byte A0) that somebody trimmed; capital letters end no such word. Other texts that lost a
   byte ('Ãngel': Á, Í or Ï?) can't be restored and stay as they are. #}
{% macro repair_double_encoding(t) -%}
case
    when regexp_matches({{ t }}, '[\x{C2}-\x{F4}][^\x{00}-\x{7F}]|[ÃÂ]$') then coalesce(
        try(decode(from_hex(array_to_string(list_transform(
            string_split(
                translate(
                    {{ t }} || case when regexp_matches({{ t }}, '[\p{Ll} ][ÃÂ]$') then chr(160) else '' end,
                    {{ _cp1252_characters() }}, {{ _c1_characters() }}
                ),
                ''
            ),
            {# 'zz' is no hexadecimal number: it makes the whole attempt null. #}
            lambda repair_c: case when length(repair_c) = 1 and ord(repair_c) < 256 then printf('%02x', ord(repair_c)) else 'zz' end
        ), '')))),
        {{ t }}
    )
    else {{ t }}
end
{%- endmacro %}

{# Mark-up out, entities to characters, once: '&amp;lt;' becomes '&lt;', not '<'.
   Only tags that texts of the sources could carry are mark-up; '1 < 2' and '<3' are not. #}
{% macro unescape_html(t) -%}
{%- set latin1 = 'nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 acute micro para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil Egrave Eacute Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc Uuml Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave iacute icirc iuml eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml'.split() -%}
{%- set others = {'quot': 34, 'amp': 38, 'apos': 39, 'lt': 60, 'gt': 62, 'OElig': 338, 'oelig': 339, 'Scaron': 352, 'scaron': 353, 'Yuml': 376, 'circ': 710, 'tilde': 732, 'ensp': 8194, 'emsp': 8195, 'thinsp': 8201, 'ndash': 8211, 'mdash': 8212, 'lsquo': 8216, 'rsquo': 8217, 'sbquo': 8218, 'ldquo': 8220, 'rdquo': 8221, 'bdquo': 8222, 'dagger': 8224, 'bull': 8226, 'hellip': 8230, 'prime': 8242, 'lsaquo': 8249, 'rsaquo': 8250, 'euro': 8364, 'trade': 8482} -%}
{%- set codes = dict(others) -%}
{%- for name in latin1 %}{% do codes.update({name: 160 + loop.index0}) %}{% endfor -%}
array_to_string(
    list_transform(
        regexp_extract_all(
            regexp_replace(
                regexp_replace({{ t }}, '(?i)<(br|/?p|/?div|/?li|/?ul|/?ol|/tr)(\s[^<>]*|/)?>', ' ', 'g'),
                '(?i)</?(a|b|i|u|em|strong|small|span|sup|sub|font|h[1-6])(\s[^<>]*)?/?>', '', 'g'
            ),
            '&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z]{2,8}[1-4]{0,2});|[^&]+|&'
        ),
        lambda html_p: case
            when not starts_with(html_p, '&') or html_p = '&' then html_p
            when starts_with(lower(html_p), '&#x')
                then coalesce(try(chr(nullif(try_cast('0x' || html_p[4:-2] as integer), 0))), html_p)
            when starts_with(html_p, '&#')
                then coalesce(try(chr(nullif(try_cast(html_p[3:-2] as integer), 0))), html_p)
            else coalesce(
                chr(map { {%- for name, code in codes.items() %}'{{ name }}': {{ code }}{{ ', ' if not loop.last }}{% endfor -%} }[html_p[2:-2]]),
                html_p
            )
        end
    ),
    ''
)
{%- endmacro %}

{# Invisible formatting characters out, every run of white space and control characters to one
   space, ends trimmed. The joiners U+200C and U+200D stay: some scripts need them. The unused
   control characters U+0080 to U+009F first become what Windows-1252 has there, as in HTML 5:
   'it&#146;s' is 'it’s'. #}
{% macro plain_spaces(t) -%}
trim(regexp_replace(
    regexp_replace(translate({{ t }}, {{ _c1_characters() }}, {{ _cp1252_characters() }}), '[\x{00AD}\x{200B}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2060}-\x{206F}\x{FEFF}]', '', 'g'),
    '[\p{Z}\p{Cc}]+', ' ', 'g'
))
{%- endmacro %}

{# One lambda after the other, so that each step sees the last one's result once. #}
{% macro _cleaned(t) -%}
list_transform(list_transform(list_transform(
    [{{ t }}],
    lambda clean_1: {{ repair_double_encoding('clean_1') }}),
    lambda clean_2: case when regexp_matches(clean_2, '<[a-zA-Z/]|&[#a-zA-Z]') then {{ unescape_html('clean_2') }} else clean_2 end),
    lambda clean_3: nullif(nfc_normalize({{ plain_spaces('clean_3') }}), '')
)[1]
{%- endmacro %}

{# A text of an original file made presentable: double encoding, HTML, control characters, white
   space, Unicode normal form C. Nothing left: null. #}
{% macro clean_text(column) -%}
{{ _cleaned(column) }}
{%- endmacro %}

{# The same for a list of texts: never null, without empty and repeated entries, order kept. #}
{% macro clean_texts(column) -%}
list_transform(
    [list_filter(list_transform(coalesce({{ column }}, []), lambda list_t: {{ _cleaned('list_t') }}), lambda list_f: list_f is not null)],
    lambda list_l: list_filter(list_l, lambda list_e, list_i: list_position(list_l, list_e) = list_i)
)[1]
{%- endmacro %}

{# A price in a text as a number: '9.99', 'Starting at $499.00'; 'Free To Play' is 0. Null if there
   is none ('Third-party'). #}
{% macro dollars(column) -%}
case
    when try_cast({{ column }} as double) >= 0 and isfinite(try_cast({{ column }} as double)) then try_cast({{ column }} as double)
    when regexp_matches({{ column }}, '\$\s*\d') then try_cast(regexp_extract({{ column }}, '\$\s*(\d+(?:\.\d+)?)', 1) as double)
    when regexp_matches({{ column }}, '(?i)\bfree\b') then 0.0
end
{%- endmacro %}
