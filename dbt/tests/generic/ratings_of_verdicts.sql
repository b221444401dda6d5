{# The ratings of recommended games, and of the others, are among those that the settings name.
   Fails with one row per offending verdict and rating. #}
{% test ratings_of_verdicts(model) %}
select recommended, rating, count(*) as times
from {{ model }}
where not list_contains(
    case when recommended then {{ var('games_recommended') }} else {{ var('games_not_recommended') }} end, rating
)
group by recommended, rating
{% endtest %}
