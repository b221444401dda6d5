{{ user_traits(ref('int_books__interactions'), ref('int_books__items')) }}
