{%- set training = training_interactions(ref('int_books__interactions'), ref('int_books__user_splits')) -%}
{{ user_traits(training, ref('int_books__items')) }}
