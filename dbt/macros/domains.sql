{# The tables that every domain has, as queries over its own interactions and items.

   A domain brings two relations under the keys of the published tables:

   interactions   user_id, item_id, rating, scale, rated_at, and what it wants beside them
   items          item_id, genres (list of text, never null), and what it wants beside them

   `user` and `item` name the columns that identify users and items on the way. They may
   be the published keys or, on large sources, numbers: windows and joins over numbers take a third
   of the memory. Ties in time and in popularity go by `item`. #}

{# Users with fewer than `split_min_interactions` interactions are left out of a domain: of its
   interactions, and so of everything that is made from them. #}
{% macro _few(ratings, user) -%}
select {{ user }}, count(*) as interactions
from {{ ratings }}
group by {{ user }}
having count(*) < {{ var('split_min_interactions') | int }}
{%- endmacro %}

{# The interactions of the users that stay. #}
{% macro kept_interactions(ratings, user='user_id') %}
select kept.*
from {{ ratings }} as kept
anti join ({{ _few(ratings, user) }}) as few using ({{ user }})
{% endmacro %}

{# Numbers of interactions and users that were left out: rows of a `int_<domain>__drops` model. The export
   of a mart notes those of its dataset in the snapshot, and `rows_accounted_for` adds them up. #}
{% macro dropped_users(domain, ratings, user='user_id') %}
select '{{ domain }}.' || t.dataset as dataset, 'user_with_too_few_interactions' as reason, t.dropped
from (
    select
        cast(coalesce(sum(interactions), 0) as bigint) as interactions,
        count(*) as human_users
    from ({{ _few(ratings, user) }})
) as counts
unpivot (dropped for dataset in (interactions, human_users)) as t
{% endmacro %}

{# The split of each user's interactions by time: the latest `split_test` share is test, the
   `split_validation` share before it validation, the rest train. #}
{% macro user_splits(interactions, user='user_id', item='item_id') %}
with ratings as (

    select {{ user }}, {{ item }}, rating, scale, rated_at from {{ interactions }}

),

users as (

    select {{ user }}, count(*) as interactions from ratings group by {{ user }}

),

sizes as (

    select
        {{ user }},
        -- Train keeps at least one interaction for all shares and minimum counts.
        least(
            {{ part_size('interactions', var('split_test')) }}, interactions - 1
        ) as test_size,
        least(
            {{ part_size('interactions', var('split_validation')) }},
            interactions - 1 - least({{ part_size('interactions', var('split_test')) }}, interactions - 1)
        ) as validation_size
    from users

),

numbered as (

    select
        *,
        row_number() over (partition by {{ user }} order by rated_at desc, {{ item }} desc) as from_latest
    from ratings

)

select
    numbered.{{ user }},
    numbered.{{ item }},
    numbered.rating,
    numbered.scale,
    case
        when numbered.from_latest <= sizes.test_size then 'test'
        when numbered.from_latest <= sizes.test_size + sizes.validation_size then 'validation'
        else 'train'
    end as split
from numbered
inner join sizes using ({{ user }})
{% endmacro %}

{# Counts, means and popularity of every item, rated or not. `splits` comes from `user_splits`. #}
{% macro item_stats(items, splits, item='item_id') %}
with counted as (

    select
        {{ item }},
        count(*) as ratings,
        avg(rating) as mean_rating,
        count(*) filter (where split = 'train') as train_ratings,
        avg(rating) filter (where split = 'train') as train_mean_rating
    from {{ splits }}
    group by {{ item }}

)

select
    items.item_id,
    coalesce(counted.ratings, 0) as ratings,
    counted.mean_rating,
    coalesce(counted.train_ratings, 0) as train_ratings,
    counted.train_mean_rating,
    row_number() over (order by coalesce(counted.ratings, 0) desc, items.{{ item }}) as popularity_rank
from {{ items }} as items
left join counted using ({{ item }})
{% endmacro %}

{# One row per user with counts, mean and times. `people` has what the source tells of its users:
   user_id, age_band, gender, occupation; a source that tells nothing gives nulls. #}
{% macro human_users(interactions, people=none) %}
with rated as (

    select
        user_id,
        count(*) as ratings,
        avg(rating) as mean_rating,
        min(rated_at) as first_rated_at,
        max(rated_at) as last_rated_at
    from {{ interactions }}
    group by user_id

)

select
    rated.*,
{%- for trait in ['age_band', 'gender', 'occupation'] %}
    {% if people is none %}cast(null as varchar) as {{ trait }}{% else %}people.{{ trait }}{% endif %}{{ ',' if not loop.last }}
{%- endfor %}
from rated
{%- if people is not none %}
left join {{ people }} as people using (user_id)
{%- endif %}
{% endmacro %}

{# The interactions of the training split, as a relation to be read from. `splits` comes from
   `user_splits`. #}
{% macro training_interactions(splits) -%}
(select * from {{ splits }} where split = 'train')
{%- endmacro %}

{# Traits of each user by the formulas of Agent4Rec (section 2.1.1; SimUSER, section 3.2.1, has the
   same) and SimUSER's pickiness. Ratings are taken to 1-5 first. Tiers end at quantiles of all
   users: a value that is equal to a quantile is still in the tier below it. `diversity_80` is the
   count of Agent4Rec's code: the most frequent genres while their cumulative share is at most 0.8,
   ties in the order of their names. `key` makes the published key of `trait_user`, which is `user`. #}
{% macro user_traits(interactions, items, user='user_id', item='item_id', key='trait_user') %}
with rated as (

    select
        {{ user }} as trait_user,
        {{ item }} as trait_item,
        {{ on_five('rating', 'scale') }} as rating
    from {{ interactions }}

),

item_means as (

    select trait_item, avg(rating) as item_mean from rated group by trait_item

),

users as (

    select
        trait_user,
        count(*) as activity,
        {{ stable('avg((rating - item_mean) * (rating - item_mean))') }} as conformity,
        {{ stable('avg(rating)') }} as mean_rating
    from rated
    inner join item_means using (trait_item)
    group by trait_user

),

item_genres as (

    select {{ item }} as trait_item, unnest(list_distinct(genres)) as genre from {{ items }}

),

genre_counts as (

    -- A user rates an item once (tests `*_interactions_unique`), so that rows are items.
    select trait_user, genre, count(*) as rated_items
    from rated
    inner join item_genres using (trait_item)
    group by trait_user, genre

),

genre_shares as (

    select
        trait_user,
        sum(rated_items) over (
            partition by trait_user order by rated_items desc, genre
            rows between unbounded preceding and current row
        ) as up_to_here,
        sum(rated_items) over (partition by trait_user) as total
    from genre_counts

),

tastes as (

    select
        trait_user,
        count(*) as diversity,
        -- In whole numbers: a share of exactly 0.8 counts.
        count(*) filter (where up_to_here * 5 <= total * 4) as diversity_80
    from genre_shares
    group by trait_user

),

traits as (

    select
        users.*,
        coalesce(tastes.diversity, 0) as diversity,
        coalesce(tastes.diversity_80, 0) as diversity_80
    from users
    left join tastes using (trait_user)

),

bounds as (

    select
{%- for trait in ['activity', 'conformity', 'diversity', 'diversity_80'] %}
        {%- set ends = {'activity': var('trait_activity'), 'conformity': var('trait_conformity'), 'diversity': var('trait_diversity'), 'diversity_80': var('trait_diversity')}[trait] %}
        {%- for end in ends %}
        quantile_disc({{ trait }}, {{ end | float }}) as {{ trait }}_{{ loop.index }}{{ ',' if not loop.last }}
        {%- endfor %}{{ ',' if not loop.last }}
{%- endfor %}
    from traits

)

select
    {{ key }} as user_id,
    traits.activity,
    {{ _tier('activity', 'low', 'high') }} as activity_tier,
    traits.conformity,
    -- A small distance from the others is much conformity.
    {{ _tier('conformity', 'high', 'low') }} as conformity_tier,
    traits.diversity,
    {{ _tier('diversity', 'low', 'high') }} as diversity_tier,
    traits.diversity_80,
    {{ _tier('diversity_80', 'low', 'high') }} as diversity_80_tier,
    traits.mean_rating,
    case
        when traits.mean_rating >= {{ var('trait_pickiness')[1] | float }} then 'not_picky'
        when traits.mean_rating >= {{ var('trait_pickiness')[0] | float }} then 'moderately_picky'
        else 'extremely_picky'
    end as pickiness
from traits
cross join bounds
{% endmacro %}

{% macro _tier(trait, least, most) -%}
case
        when traits.{{ trait }} <= bounds.{{ trait }}_1 then '{{ least }}'
        when traits.{{ trait }} <= bounds.{{ trait }}_2 then 'medium'
        else '{{ most }}'
    end
{%- endmacro %}
