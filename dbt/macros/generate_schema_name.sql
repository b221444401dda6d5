{# Schemas are named as configured (`staging`, `marts`, …), without the target's name before them:
   one warehouse file belongs to one home, so there is nothing to keep apart. #}
{% macro generate_schema_name(custom_schema_name, node) -%}
    {{ (custom_schema_name or target.schema) | trim }}
{%- endmacro %}
