{{ user_traits(training_interactions(ref('int_books__user_splits')), ref('int_books__items')) }}
