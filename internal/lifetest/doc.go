// Package lifetest lives lives: sessions go through random operations of every kind,
// in this process and in others that are killed, while a model keeps in memory what
// must be there. After each operation the touched session is compared with the model,
// now and then everything is. It holds nothing but tests.
package lifetest
