{# Every book has each field that is demanded of the file it is from. `places` has item_id and file,
   `demands` file, field (title, description, date, category) and demanded. Fails with the books. #}
{% test meets_demands(model, demands, places) %}
select model.item_id, demands.file, demands.field
from {{ model }} as model
inner join {{ places }} as places using (item_id)
inner join {{ demands }} as demands on places.file = demands.file and demands.demanded
where (demands.field = 'title' and model.title is null)
    or (demands.field = 'description' and model.description is null)
    or (demands.field = 'date' and model.year is null)
    or (demands.field = 'category' and len(model.genres) = 0)
{% endtest %}
