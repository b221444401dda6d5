{# A log of builds inside the database, written in the same transaction as the relation: the proof
   that a relation is from the run that pipelines.warehouse has a record of, and not from a later
   one that was killed before anybody could note what it did. #}
{% macro prepare_build_log() %}
create schema if not exists understudy_meta;
create table if not exists understudy_meta.builds (
    model varchar not null, invocation_id varchar not null, built_at timestamptz not null
);
{% endmacro %}

{% macro log_build() %}
insert into understudy_meta.builds values ('{{ model.unique_id }}', '{{ invocation_id }}', now())
{% endmacro %}
