{# The ratings of recommended games, and of the others, are among those of the macro `verdict`.
   Fails with one row per offending verdict and rating. #}
{% test ratings_of_verdicts(model) %}
select recommended, rating, count(*) as times
from {{ model }}
where not list_contains(
    case when recommended then [3, 4, 5] else [1, 2] end, rating
)
group by recommended, rating
{% endtest %}
