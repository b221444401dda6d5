{{ user_traits(ref('int_products__interactions'), ref('int_products__items')) }}
