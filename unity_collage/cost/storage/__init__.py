"""Tables, connections and exchange of the cost database; :mod:`unity_collage.database.costs` is the door."""
